"""Every network by name: rows of one table."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from lambdanets.models.blocks import Setup
from lambdanets.models.middle import Middle
from lambdanets.models.resnet import OF_LAMBDA_LAYERS, ResNet, ResNetConfig
from lambdanets.models.vit import ViT, ViTConfig

Network = ResNet | ViT
Config = ResNetConfig | ViTConfig

# Depth: blocks of c2 to c5, lambda layers in c4 of the hybrid, image size of the 350-epoch setup.
DEPTHS: dict[int, tuple[tuple[int, int, int, int], int | None, int]] = {
    26: ((2, 2, 2, 2), None, 224),
    50: ((3, 4, 6, 3), None, 224),
    101: ((3, 4, 23, 3), 3, 224),
    152: ((3, 8, 36, 3), 6, 256),
    200: ((3, 24, 36, 3), 6, 256),
    270: ((4, 29, 53, 4), 6, 256),
    350: ((4, 36, 72, 4), 6, 288),
    420: ((4, 44, 87, 4), 8, 320),
}
# For images of 8 to 64 pixels.
SMALL = {14: (1, 1, 1, 1), 26: (2, 2, 2, 2)}

# Channels, blocks and heads of ViTs; those behind are for images of 8 to 64 pixels.
VIT_SIZES = {"tiny": (192, 12, 3), "small": (384, 12, 6), "base": (768, 12, 12)}
SMALL_VIT_SIZES = {"micro": (96, 6, 3), "tiny": (192, 6, 3)}
PUBLISHED_ATTENTION = {"bias": True, "positions": "none"}


def _resnets() -> dict[str, ResNetConfig]:
    rows = {}
    for depth, (blocks, hybrid, size) in DEPTHS.items():
        rows[f"resnet{depth}"] = ResNetConfig(blocks=blocks)
        if hybrid is None:
            rows[f"lambda_resnet{depth}"] = ResNetConfig(blocks=blocks, placement="LLLL")
        else:
            row = ResNetConfig(blocks=blocks, placement=f"CC{hybrid}L", image_size=size)
            rows[f"lambda_resnet{depth}"] = with_setup(row, "350")
    for depth, blocks in SMALL.items():
        small = ResNetConfig(blocks=blocks, setup="small", image_size=32, num_classes=10)
        rows[f"resnet{depth}_small"] = small
        rows[f"lambda_resnet{depth}_small"] = replace(small, placement="LLLL")
    return rows


def with_setup(row: ResNetConfig, setup: Setup) -> ResNetConfig:
    """A network in another setup, with what goes with that: image size, squeeze-and-excitation, dropout, drop path.

    Squeeze-and-excitation in networks without lambda layers is not part of it: they are published with and without.
    """
    if setup != "350":
        size = 32 if setup == "small" else 224
        return replace(row, setup=setup, image_size=size, se=False, dropout=0.0, drop_path=0.0)
    sizes = [size for blocks, _, size in DEPTHS.values() if blocks == row.blocks]
    return replace(
        row,
        setup=setup,
        image_size=sizes[0] if sizes else 224,
        se=not row.is_convolutional,
        dropout=0.3,
        drop_path=0.2 if sum(row.blocks) > sum(DEPTHS[200][0]) else 0.0,
    )


def _vits() -> dict[str, ViTConfig]:
    small: dict[str, Any] = {"patch": 4, "image_size": 32, "num_classes": 10}
    rows = {}
    for suffix, sizes, changes in (("", VIT_SIZES, {}), ("_small", SMALL_VIT_SIZES, small)):
        for name, (d, depth, h) in sizes.items():
            row = ViTConfig(d=d, depth=depth, h=h, mixer_options=PUBLISHED_ATTENTION, **changes)
            rows[f"vit_{name}{suffix}"] = row
            rows[f"lambda_vit_{name}{suffix}"] = replace(with_mixer(row, "lambda"), h=4)
    return rows


def with_mixer(row: ViTConfig, mixer: str) -> ViTConfig:
    """With another mixer, in its own way: without the old one's options, and on the grid, where it sees both axes."""
    return row if mixer == row.mixer else replace(row, mixer=mixer, mixer_options={}, pool="mean")


RESNETS, VITS = _resnets(), _vits()
MODELS: dict[str, Config] = {**RESNETS, **VITS}


def list_models() -> list[str]:
    """The names that `create_model` knows."""
    return list(MODELS)


def create_model(name: str, *, middle: Middle | None = None, **changes: Any) -> Network:
    """A network by name, with changes to its row; weights start at random.

    Args:
        middle: of a ResNet, makes the layers of blocks marked L instead of lambda layers, see
            `lambdanets.models.middle`.
        changes: fields of `ResNetConfig` or `ViTConfig`. Unless these are given too, a change of setup brings the image
            size, dropout, drop path and squeeze-and-excitation of that setup, a layer in a ResNet without lambda layers
            comes into all blocks, and a change of mixer brings its own options, the mean in place of a class token, and
            learned positions if it knows no places.
            The mixer of a ViT can also be what makes a layer on tokens from d, see `lambdanets.models.mixers`.

    >>> create_model("lambda_resnet50", placement="CLLL", k=8, scope=7).config.placement
    'CLLL'
    >>> create_model("vit_tiny_small", mixer="lambda", mixer_options={"scope": 7}).config.pool
    'mean'
    """
    if name not in MODELS:
        raise ValueError(f"there is no model {name!r}; there are {', '.join(MODELS)}")
    row = MODELS[name]
    unknown = changes.keys() - {field.name for field in fields(row)}
    if unknown:
        raise ValueError(f"{name}: nothing is called {', '.join(sorted(unknown))} in {type(row).__name__}")
    if isinstance(row, ResNetConfig):
        if "layer" in changes and row.placement == "CCCC":
            row = replace(row, placement="LLLL")
        if changes.get("setup", row.setup) != row.setup:
            shape = {name: changes[name] for name in ("blocks", "placement") if name in changes}
            row = with_setup(replace(row, **shape), changes["setup"])
        config = replace(row, **changes)
        refuse_idle(name, config, changes, middle)
        return ResNet(config, middle=middle)
    if middle is not None:
        raise ValueError(f"{name}: a ViT has no middle, got middle={middle}; mixer takes what makes a layer")
    mixer = changes.get("mixer", row.mixer)
    if callable(mixer):
        others = {field: value for field, value in changes.items() if field != "mixer"}
        return ViT(replace(row, **{"mixer_options": {}, **others}), mixer=mixer)
    return ViT(replace(with_mixer(row, mixer), **changes))


def refuse_idle(name: str, config: ResNetConfig, changes: Mapping[str, Any], middle: Middle | None) -> None:
    """Who asks for something of lambda layers wants some, unless their own placement has none."""
    asked = {field: changes[field] for field in OF_LAMBDA_LAYERS if field in changes}
    told = ", ".join(f"{field}={value!r}" for field, value in asked.items())
    if asked and middle is not None:
        raise ValueError(f"{name}: lambda layers take {told}, but middle makes the layers here")
    if middle is not None and (not callable(middle) or changes.keys() & {"layer", "layer_options"}):
        raise ValueError(f"{name}: middle makes a layer from its place, and no `layer` does beside it, got {middle!r}")
    if config.is_convolutional and "placement" not in changes and (asked or middle is not None):
        raise ValueError(
            f"{name} has convolutions only, which do not take {told or 'the place of a middle'}; "
            f'placement="LLLL" has other layers in all blocks'
        )
