"""Every layer of the family by name: rows of one table."""

from collections.abc import Mapping
from inspect import signature
from typing import Any, Literal, NamedTuple

from torch import nn

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

Face = Literal["maps", "tokens"]


class Row(NamedTuple):
    """A layer's classes by face, and what `create_layer` changes in their defaults."""

    maps: type[nn.Module] | None
    tokens: type[nn.Module] | None = None
    changes: Mapping[str, Any] = {}


RELATIVE = {"positions": "relative"}
LAYERS: dict[str, Row] = {
    "lambda": Row(LambdaLayer2d, LambdaMixer),
    "attention": Row(Attention2d, AttentionMixer, RELATIVE),
    "multiquery": Row(Attention2d, AttentionMixer, {**RELATIVE, "g": 1}),
    "axial": Row(Axial2d, None, RELATIVE),
    "local": Row(Local2d, LocalMixer),
    "augmented": Row(Augmented2d),
    "relation": Row(Relation2d),
    "vector": Row(Vector2d),
    "linear": Row(Linear2d, LinearMixer),
    "efficient": Row(Efficient2d, EfficientMixer),
    "projected": Row(Projected2d, ProjectedMixer),
    "double": Row(Double2d, DoubleMixer),
    "squeeze": Row(SqueezeExcitation2d, SqueezeExcitationMixer),
    "film": Row(FiLM2d, FiLMMixer),
    "bam": Row(BAM2d),
    "cbam": Row(CBAM2d),
}


def list_layers(face: Face | None = None) -> list[str]:
    """The names that `create_layer` knows, all of them or those of a face.

    >>> "lambda" in list_layers("tokens")
    True
    """
    return [name for name, row in LAYERS.items() if face is None or getattr(row, face) is not None]


def layer_class(name: str, face: Face) -> type[nn.Module]:
    if name not in LAYERS:
        raise ValueError(f"there is no layer {name!r}; there are {', '.join(LAYERS)}")
    found: type[nn.Module] | None = getattr(LAYERS[name], face)
    if found is None:
        raise ValueError(f"{name} is no layer on {face}; those are {', '.join(list_layers(face))}")
    return found


def create_layer(
    name: str,
    d_in: int,
    d_out: int | None = None,
    *,
    face: Face = "maps",
    size: int | tuple[int, ...] | None = None,
    **options: Any,
) -> nn.Module:
    """A layer by name, on maps (b, d, height, width) or on tokens (b, n, d).

    Args:
        size: the largest map, or the most tokens, for the layers that must know; without it, positions that need it
            are left out.
        options: of the layer's class.

    >>> create_layer("attention", 32, h=2, size=14)(torch.randn(2, 32, 14, 14)).shape
    torch.Size([2, 32, 14, 14])
    """
    made = layer_class(name, face)
    known = signature(made).parameters
    if unknown := options.keys() - known.keys():
        raise ValueError(f"{name}: {made.__name__} has no {', '.join(sorted(unknown))}, only {', '.join(known)}")
    if "size" in known and size is not None:
        options["size"] = size
    elif "size" in known and "positions" in known:
        options.setdefault("positions", "none")
    return made(d_in, d_out, **{**LAYERS[name].changes, **options})
