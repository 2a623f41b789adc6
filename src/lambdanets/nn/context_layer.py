"""What every layer of the family does around its own idea: layouts, context, masks."""

import math
from typing import ClassVar

from jaxtyping import Bool, Float
from torch import Tensor, nn

from lambdanets.nn.arguments import positive
from lambdanets.nn.layout import OnMaps
from lambdanets.ops.masks import Allowed, drop_nonfinite, drop_unusable, read_mask


class ContextLayer(nn.Module, OnMaps):
    """A layer that lets every position of `x` read a context; a subclass says how in `mix`.

    It takes maps of `dims` axes; with `OnTokens` before it among the bases of a class, tokens. What a layer cannot do
    it declares, and `forward` refuses.
    """

    reads_context: ClassVar[bool] = True  # another than its own input
    reads_mask: ClassVar[bool] = True

    def __init__(self, d_in: int, d_out: int | None = None, d_context: int | None = None) -> None:
        super().__init__()
        self.d_in = d_in
        self.d_out = d_in if d_out is None else d_out
        self.d_context = d_in if d_context is None else d_context
        positive(type(self).__name__, d_in=self.d_in, d_out=self.d_out, d_context=self.d_context)

    def mix(
        self, x: Float[Tensor, "b *grid d"], context: Float[Tensor, "b *other e"], allowed: Allowed
    ) -> Float[Tensor, "b *grid o"]:
        """The layer itself, channels behind; if no other was given, `context` is `x` too."""
        raise NotImplementedError

    def forward(
        self,
        x: Float[Tensor, "b ..."],
        context: Float[Tensor, "b ..."] | None = None,
        *,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "b ..."]:
        """Let every position of `x` read the context.

        Args:
            x: the input, and the context too unless another is given. A map without positions gives one like it.
            context: where keys and values come from.
            mask: which context positions a query may use, True = may use, broadcastable to (b, n, m).
        """
        owner = type(self).__name__
        if context is not None and not self.reads_context:
            raise ValueError(f"{owner}: a separate context is not supported, got one of shape {tuple(context.shape)}")
        if mask is not None and not self.reads_mask:
            raise ValueError(f"{owner}: masks are not supported, got one of shape {tuple(mask.shape)}")
        queries, source = self._queries_and_source(x, context)
        grid, other = queries.shape[1:-1], source.shape[1:-1]
        allowed = read_mask(mask, queries.shape[0], math.prod(grid), math.prod(other))
        if 0 in grid:  # no position has anything to say; in the graph, so that backward runs
            nothing = queries.sum(-1, keepdim=True).expand(*queries.shape[:-1], self.d_out)
            return self._layout(nothing, like=x)
        usable = allowed.usable()
        if usable is not None:
            if context is None:
                queries = drop_nonfinite(queries.flatten(1, -2), usable).unflatten(1, grid)
            source = drop_unusable(source.flatten(1, -2), usable).unflatten(1, other)
        return self._layout(self.mix(queries, source, allowed), like=x)

    def _queries_and_source(
        self, x: Float[Tensor, "b ..."], context: Float[Tensor, "b ..."] | None
    ) -> tuple[Float[Tensor, "b *grid d"], Float[Tensor, "b *other e"]]:
        """The input and its context with their channels behind, checked: one tensor if there is no other context."""
        queries = self._channels_last("x", x, self.d_in)
        if context is None and self.d_context == self.d_in:
            return queries, queries
        source = self._channels_last("context", x if context is None else context, self.d_context)
        if source.shape[0] != queries.shape[0]:
            raise ValueError(
                f"{type(self).__name__}: x and context must have the same batch, "
                f"got b={queries.shape[0]} and {source.shape[0]}"
            )
        return queries, source
