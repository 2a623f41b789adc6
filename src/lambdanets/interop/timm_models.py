"""Our networks in timm's registry: import this module, and `timm.create_model("lambda_resnet50")` makes one.

timm has ResNets of its own, so ours without lambda layers are called `lambdanets_resnet50` there. It drops arguments
that are None, so a global scope is called "global" there.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from torch import nn

from lambdanets.models import Network, ViTConfig, create_model
from lambdanets.models.registry import MODELS, Config

# What timm calls some fields of ours.
RENAMED = {"img_size": "image_size", "drop_rate": "dropout", "drop_path_rate": "drop_path"}
POOLS = {"token": "class", "avg": "mean"}  # of ViTs


def timm_name(name: str) -> str:
    """
    >>> timm_name("lambda_resnet50"), timm_name("resnet50")
    ('lambda_resnet50', 'lambdanets_resnet50')
    """
    return name if name.startswith("lambda_") else f"lambdanets_{name}"


def first_convolution(config: Config) -> str:
    if isinstance(config, ViTConfig):
        return "patches" if config.stem == "linear" else "patches.0.0"
    return "stem.0" if config.setup == "small" else "stem.0.0"


# What timm wants to know about the input and the names of layers; there are no weights to download.
default_cfgs = generate_default_cfgs(
    {
        f"{timm_name(name)}.untrained": {
            "url": "",
            "num_classes": config.num_classes,
            "input_size": (config.in_chans, config.image_size, config.image_size),
            "mean": (0.485, 0.456, 0.406),
            "std": (0.229, 0.224, 0.225),
            "interpolation": "bicubic",
            "crop_pct": 0.875,
            "first_conv": first_convolution(config),
            "classifier": "classifier",
        }
        for name, config in MODELS.items()
    }
)


def build(name: str, *, img_size: int | tuple[int, int] | None = None, **options: Any) -> nn.Module:
    """`create_model` with the names that timm has for things."""
    pool = options.pop("global_pool", None)
    if isinstance(MODELS[name], ViTConfig) and pool in POOLS:
        options["pool"] = POOLS[pool]
    elif pool not in (None, "avg"):
        raise ValueError(f"{name}: there is one way to pool, got global_pool={pool!r}; forward_features does not")
    if isinstance(img_size, tuple):
        if len(set(img_size)) > 1:
            raise ValueError(f"{name}: embeddings are cut for square images, got img_size={img_size}")
        img_size = img_size[0]
    if img_size is not None:
        options["img_size"] = img_size
    for theirs, ours in RENAMED.items():
        if theirs in options and ours in options:
            raise ValueError(
                f"{name}: {theirs} and {ours} are one thing, got {theirs}={options[theirs]!r} and "
                f"{ours}={options[ours]!r}"
            )
    changes = {RENAMED.get(field, field): value for field, value in options.items() if value is not None}
    if changes.get("scope") == "global":
        changes["scope"] = None
    return create_model(name, **changes)


def entry_point(name: str) -> Callable[..., nn.Module]:
    def create(pretrained: bool = False, **options: Any) -> nn.Module:
        if options.get("features_only") and isinstance(MODELS[name], ViTConfig):
            raise ValueError(f"{name}: a ViT has maps of one size only, got features_only=True")
        features = {"out_indices": (0, 1, 2, 3), "flatten_sequential": True}
        model: nn.Module = build_model_with_cfg(
            partial(build, name), timm_name(name), pretrained, feature_cfg=features, **options
        )
        if isinstance(model, Network):  # and not a backbone made from one
            side = model.config.image_size
            changed = {
                "input_size": (model.config.in_chans, side, side),
                "num_classes": model.num_classes,
                "first_conv": first_convolution(model.config),
            }
            cast(dict[str, Any], model.pretrained_cfg).update(changed)
        return model

    create.__name__ = create.__qualname__ = timm_name(name)
    create.__doc__ = f"lambdanets.create_model({name!r})"
    return create


for _name in MODELS:
    register_model(entry_point(_name))
