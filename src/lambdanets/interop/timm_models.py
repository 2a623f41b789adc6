"""Image classifiers in timm's registry: import this module, and `timm.create_model("lambda_resnet50")` builds one.

timm has ResNets and ViTs of its own, so names without `lambda_` get a prefix there, as in `lambdanets_resnet50`. timm
drops arguments that are None, so a global scope is `scope="global"` there.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from torch import nn

from lambdanets.models import ImageClassifier, ImageConfig, create_model, list_models
from lambdanets.models.families import family_of
from lambdanets.models.registry import find_config

# Arguments of timm, with the fields of ours that mean the same.
RENAMED = {"img_size": "image_size", "drop_rate": "dropout", "drop_path_rate": "drop_path"}


def timm_name(name: str) -> str:
    """
    >>> timm_name("lambda_resnet50"), timm_name("resnet50")
    ('lambda_resnet50', 'lambdanets_resnet50')
    """
    return name if name.startswith("lambda_") else f"lambdanets_{name}"


def image_config(name: str) -> ImageConfig:
    """The configuration of an image classifier by name; ValueError for other networks, which timm has no place for."""
    row = find_config(name)
    if not isinstance(row, ImageConfig):
        kind = "unknown" if row is None else f"a {family_of(row).network.__name__}"
        raise ValueError(f"{name}: timm's registry holds image classifiers, got {kind}")
    return row


def input_info(config: ImageConfig) -> dict[str, Any]:
    """The entries of timm's configurations that follow from ours."""
    return {
        "num_classes": config.num_classes,
        "input_size": (config.in_chans, config.image_size, config.image_size),
        "first_conv": config.first_conv,
    }


def image_models() -> list[str]:
    """The names of image classifiers, which are registered."""
    return [name for name in list_models() if isinstance(find_config(name), ImageConfig)]


# There are no weights to download.
default_cfgs = generate_default_cfgs(
    {
        f"{timm_name(name)}.untrained": {
            "url": "",
            "mean": (0.485, 0.456, 0.406),
            "std": (0.229, 0.224, 0.225),
            "interpolation": "bicubic",
            "crop_pct": 0.875,
            "classifier": "classifier",
            **input_info(image_config(name)),
        }
        for name in image_models()
    }
)


def build(name: str, *, img_size: int | tuple[int, int] | None = None, **options: Any) -> nn.Module:
    """`create_model` with timm's names of arguments."""
    pools, pool = image_config(name).pools, options.pop("global_pool", None)
    if pool in pools:
        options["pool"] = pools[pool]
    elif pool not in (None, "avg"):
        raise ValueError(f"{name}: there is one way to pool, got global_pool={pool!r}; forward_features does not pool")
    if isinstance(img_size, tuple):
        if len(set(img_size)) > 1:
            raise ValueError(f"{name}: embeddings are for square images, got img_size={img_size}")
        img_size = img_size[0]
    if img_size is not None:
        options["img_size"] = img_size
    for theirs, ours in RENAMED.items():
        if theirs in options and ours in options:
            raise ValueError(
                f"{name}: {theirs} and {ours} mean the same, got {theirs}={options[theirs]!r} and "
                f"{ours}={options[ours]!r}"
            )
    changes = {RENAMED.get(field, field): value for field, value in options.items() if value is not None}
    if changes.get("scope") == "global":
        changes["scope"] = None
    return create_model(name, **changes)


def entry_point(name: str) -> Callable[..., nn.Module]:
    """The function that timm calls to create a network."""
    network = family_of(image_config(name)).network

    def create(pretrained: bool = False, **options: Any) -> nn.Module:
        if options.get("features_only") and not hasattr(network, "feature_maps"):
            raise ValueError(f"{name}: a {network.__name__} has maps of one size only, got features_only=True")
        features = {"out_indices": (0, 1, 2, 3), "flatten_sequential": True}
        model: nn.Module = build_model_with_cfg(
            partial(build, name), timm_name(name), pretrained, feature_cfg=features, **options
        )
        if isinstance(model, ImageClassifier):  # rather than a backbone made from one
            cast(dict[str, Any], model.pretrained_cfg).update(input_info(model.config))
        return model

    create.__name__ = create.__qualname__ = timm_name(name)
    create.__doc__ = f"lambdanets.create_model({name!r})"
    return create


for _name in image_models():
    register_model(entry_point(_name))
