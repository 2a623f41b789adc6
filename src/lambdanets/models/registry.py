"""Every network by name: rows of one table."""

from dataclasses import fields, replace
from typing import Any

from lambdanets.models.middle import Middle
from lambdanets.models.resnet import ResNet, ResNetConfig

# Depth: blocks of c2 to c5, lambda layers in c4 of the hybrid, image size of the 350-epoch setup.
DEPTHS: dict[int, tuple[tuple[int, int, int, int], int | None, int]] = {
    26: ((2, 2, 2, 2), None, 224),
    50: ((3, 4, 6, 3), 1, 224),
    101: ((3, 4, 23, 3), 3, 224),
    152: ((3, 8, 36, 3), 6, 256),
    200: ((3, 24, 36, 3), 6, 256),
    270: ((4, 29, 53, 4), 6, 256),
    350: ((4, 36, 72, 4), 6, 288),
    420: ((4, 44, 87, 4), 8, 320),
}
# For images of 8 to 64 pixels.
SMALL = {14: (1, 1, 1, 1), 26: (2, 2, 2, 2)}


def _table() -> dict[str, ResNetConfig]:
    rows = {}
    for depth, (blocks, hybrid, size) in DEPTHS.items():
        rows[f"resnet{depth}"] = ResNetConfig(blocks=blocks)
        if depth <= 50:
            rows[f"lambda_resnet{depth}"] = ResNetConfig(blocks=blocks, placement="LLLL")
        else:
            rows[f"lambda_resnet{depth}"] = ResNetConfig(
                blocks=blocks,
                placement=f"CC{hybrid}L",
                setup="350",
                image_size=size,
                se=True,
                drop_path=0.2 if depth > 200 else 0.0,
                dropout=0.3,
            )
    for depth, blocks in SMALL.items():
        small = ResNetConfig(blocks=blocks, setup="small", image_size=32, num_classes=10)
        rows[f"resnet{depth}_small"] = small
        rows[f"lambda_resnet{depth}_small"] = replace(small, placement="LLLL")
    return rows


MODELS = _table()


def list_models() -> list[str]:
    """The names that `create_model` knows."""
    return list(MODELS)


def create_model(name: str, *, middle: Middle | None = None, **changes: Any) -> ResNet:
    """A network by name, with changes to its row; weights start at random.

    Args:
        middle: makes the layers of blocks marked L instead of lambda layers, see `lambdanets.models.middle`.
        changes: fields of `ResNetConfig`. A change of setup brings the image size of that setup unless one is given.

    >>> create_model("lambda_resnet50", placement="CLLL", k=8, scope=7).config.placement
    'CLLL'
    """
    if name not in MODELS:
        raise ValueError(f"there is no model {name!r}; there are {', '.join(MODELS)}")
    unknown = changes.keys() - {field.name for field in fields(ResNetConfig)}
    if unknown:
        raise ValueError(f"{name}: nothing is called {', '.join(sorted(unknown))} in {ResNetConfig.__name__}")
    row = MODELS[name]
    if changes.get("setup", row.setup) != row.setup:
        row = replace(row, image_size=image_size_of(row.blocks, changes["setup"]))
    return ResNet(replace(row, **changes), middle=middle)


def image_size_of(blocks: tuple[int, int, int, int], setup: str) -> int:
    if setup == "small":
        return 32
    of_depth = [size for its, _, size in DEPTHS.values() if its == blocks]
    return of_depth[0] if setup == "350" and of_depth else 224
