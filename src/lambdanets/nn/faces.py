"""The two faces of a layer: on maps (b, d, *grid), where a convolution stands, and on tokens (b, n, d)."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from lambdanets.nn.layout import memory_format


class OnMaps:
    """Maps of `dims` axes in, maps out, in the memory format of the input."""

    dims: ClassVar[int]

    def _channels_last(self, name: str, x: Float[Tensor, "b ..."], d: int) -> Float[Tensor, "b *grid d"]:
        """A map (b, d, *grid), checked, with its channels behind."""
        axes = ", ".join("n" if self.dims == 1 else f"n{i + 1}" for i in range(self.dims))
        if x.ndim != 2 + self.dims or x.shape[1] != d:
            raise ValueError(f"{type(self).__name__}: {name} must be (b, {d}, {axes}), got shape {tuple(x.shape)}")
        return x.movedim(1, -1)

    def _layout(self, y: Float[Tensor, "b *grid d"], like: Float[Tensor, "b ..."]) -> Float[Tensor, "b ..."]:
        """A map in the memory format of the input, as a convolution returns it."""
        return y.movedim(-1, 1).contiguous(memory_format=memory_format(like))


class OnTokens:
    """Tokens in, tokens out."""

    dims: ClassVar[int] = 1

    def _channels_last(self, name: str, x: Float[Tensor, "b ..."], d: int) -> Float[Tensor, "b n d"]:
        if x.ndim != 3 or x.shape[2] != d:
            raise ValueError(f"{type(self).__name__}: {name} must be (b, n, {d}), got shape {tuple(x.shape)}")
        return x

    def _layout(self, y: Float[Tensor, "b n d"], like: Float[Tensor, "b ..."]) -> Float[Tensor, "b n d"]:
        return y
