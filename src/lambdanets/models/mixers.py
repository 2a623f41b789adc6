"""Token mixers of Transformers: any layer of the family, by name or made by a callable.

A mixer is called as `mixer(x, context=None, mask=None)` on tokens (b, n, d), with context and mask as keywords.
"""

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from lambdanets.nn.registry import Layout, create_layer, layer_class

# A name that `create_layer` knows, or a callable that makes a layer from d and options.
Mixer = str | Callable[..., nn.Module]

# Defaults for layers that have these options. A mixer is followed by a residual sum instead of a convolution or norm:
# the layer has to combine its heads itself, and tables have to start small.
IN_BLOCKS: Mapping[str, Any] = {"project_out": True, "table_std": 0.02}


class OnGrid(nn.Module):
    """A layer on maps (b, d, *grid), applied to tokens on a grid, (b, *grid, d)."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(
        self,
        x: Float[Tensor, "b *grid d"],
        context: Float[Tensor, "b *other e"] | None = None,
        *,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "b *grid d"]:
        given = {} if context is None else {"context": context.movedim(-1, 1)}
        if mask is not None:
            given["mask"] = mask
        y: Tensor = self.layer(x.movedim(-1, 1), **given)
        return y.movedim(1, -1)


def make_mixer(
    mixer: Mixer,
    d: int,
    options: Mapping[str, Any] | None = None,
    *,
    layout: Layout = "tokens",
    defaults: Mapping[str, Any] | None = None,
) -> nn.Module:
    """A layer with d input and output channels.

    Args:
        mixer: a name, or a callable that takes d and the options.
        options: of the layer.
        layout: "maps" for a layer that sees the axes of a grid; the mixer then takes tokens (b, *grid, d).
        defaults: options that a named layer gets if it has them and `options` does not.
    """
    options = options or {}
    if not isinstance(mixer, str):
        return mixer(d, **options)
    known = signature(layer_class(mixer, layout)).parameters
    known_defaults = {name: value for name, value in {**IN_BLOCKS, **(defaults or {})}.items() if name in known}
    layer = create_layer(mixer, d, layout=layout, **{**known_defaults, **options})
    return layer if layout == "tokens" else OnGrid(layer)
