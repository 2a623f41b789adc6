"""Every layer of the family by name: rows of one table."""

from collections.abc import Mapping
from inspect import Parameter
from typing import Any, Literal, NamedTuple, get_args

from torch import nn

from lambdanets.nn.arguments import keywords, known_options, one_of
from lambdanets.nn.attention import (
    Attention2d,
    AttentionMixer,
    Augmented2d,
    Axial2d,
    Double2d,
    DoubleMixer,
    Efficient2d,
    EfficientMixer,
    Linear2d,
    LinearMixer,
    Local2d,
    LocalMixer,
    Projected2d,
    ProjectedMixer,
    Relation2d,
    Vector2d,
)
from lambdanets.nn.gates import (
    BAM2d,
    CBAM2d,
    FiLM2d,
    FiLMMixer,
    SqueezeExcitation2d,
    SqueezeExcitationMixer,
)
from lambdanets.nn.lambda_layers import LambdaLayer2d, LambdaMixer

Layout = Literal["maps", "tokens"]


class LayerRow(NamedTuple):
    """A layer's classes by layout, what `create_layer` changes in their defaults, and whether it knows places."""

    maps: type[nn.Module] | None
    tokens: type[nn.Module] | None = None
    changes: Mapping[str, Any] = {}
    is_blind: bool = False  # whatever its options, on maps it does not know where positions stand


RELATIVE = {"positions": "relative"}
LAYERS: dict[str, LayerRow] = {
    "lambda": LayerRow(LambdaLayer2d, LambdaMixer),
    "attention": LayerRow(Attention2d, AttentionMixer, RELATIVE),
    "multiquery": LayerRow(Attention2d, AttentionMixer, {**RELATIVE, "g": 1}),
    "axial": LayerRow(Axial2d, None, RELATIVE),
    "local": LayerRow(Local2d, LocalMixer),
    "augmented": LayerRow(Augmented2d),
    "relation": LayerRow(Relation2d),
    "vector": LayerRow(Vector2d),
    "linear": LayerRow(Linear2d, LinearMixer, is_blind=True),
    "efficient": LayerRow(Efficient2d, EfficientMixer, is_blind=True),
    "projected": LayerRow(Projected2d, ProjectedMixer),
    "double": LayerRow(Double2d, DoubleMixer, is_blind=True),
    "squeeze": LayerRow(SqueezeExcitation2d, SqueezeExcitationMixer, is_blind=True),
    "film": LayerRow(FiLM2d, FiLMMixer, is_blind=True),
    "bam": LayerRow(BAM2d),
    "cbam": LayerRow(CBAM2d),
}


def list_layers(layout: Layout | None = None) -> list[str]:
    """The names that `create_layer` knows, all of them or those of a layout.

    >>> "lambda" in list_layers("tokens")
    True
    """
    one_of("list_layers", layout=(layout, (None, *get_args(Layout))))
    return [name for name, row in LAYERS.items() if layout is None or getattr(row, layout) is not None]


def layer_class(name: str, layout: Layout) -> type[nn.Module]:
    if name not in LAYERS:
        raise ValueError(f"unknown layer {name!r}; choose from {', '.join(LAYERS)}")
    one_of(name, layout=(layout, get_args(Layout)))
    found: type[nn.Module] | None = getattr(LAYERS[name], layout)
    if found is None:
        raise ValueError(f"{name} does not support layout={layout!r}; layers that do: {', '.join(list_layers(layout))}")
    return found


def knows_places(name: str, options: Mapping[str, Any]) -> bool:
    """Whether a layer with these options and a given size uses the relative positions of its inputs.

    >>> knows_places("lambda", {}), knows_places("lambda", {"terms": "content"}), knows_places("linear", {})
    (True, False, False)
    """
    layer_class(name, "maps")
    return not LAYERS[name].is_blind and options.get("positions") != "none" and options.get("terms") != "content"


def create_layer(
    name: str,
    d_in: int,
    d_out: int | None = None,
    *,
    layout: Layout = "maps",
    size: int | tuple[int, ...] | None = None,
    **options: Any,
) -> nn.Module:
    """A layer by name, on maps (b, d, height, width) or on tokens (b, n, d).

    Args:
        layout: of the input, "maps" or "tokens".
        size: the largest map, or the most tokens, for the layers that must know; without it, positions that need it
            are left out.
        options: of the layer's class.

    >>> create_layer("attention", 32, h=2, size=14)(torch.randn(2, 32, 14, 14)).shape
    torch.Size([2, 32, 14, 14])
    """
    layout = options.pop("face", layout)  # its name in earlier versions
    made = layer_class(name, layout)
    owner, known = f"{name}: {made.__name__}", keywords(made)
    known_options(owner, options, known)
    if "size" in known and size is not None:
        options["size"] = size
    elif "size" in known and "positions" in known:
        options.setdefault("positions", "none")
    needed = [option for option, its in known.items() if its.default is Parameter.empty and option not in options]
    if needed:
        raise ValueError(f"{owner} needs {', '.join(needed)}; its options are {', '.join(known)}")
    return made(d_in, d_out, **{**LAYERS[name].changes, **options})
