"""How inputs are laid out: maps (b, d, *grid), as convolutions take them, or tokens (b, n, d), as attention does."""

from typing import ClassVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor


class OnMaps:
    """Maps of `dims` axes in, maps out, in the memory format of the input."""

    dims: ClassVar[int]

    def _channels_last(self, name: str, x: Float[Tensor, "b ..."], d: int) -> Float[Tensor, "b *grid d"]:
        """A map (b, d, *grid), checked, with its channels behind."""
        if x.ndim != 2 + self.dims or x.shape[1] != d:
            axes = ", ".join("n" if self.dims == 1 else f"n{i + 1}" for i in range(self.dims))
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


def strided(stride: tuple[int, ...], x: Shaped[Tensor, "b *grid"]) -> Shaped[Tensor, "b *strided"]:
    """Positions 0, s, 2s, ... of each axis; not as slices, whose layout export cannot follow for unknown sizes."""
    for axis, s in enumerate(stride, start=1):
        if s > 1:
            x = x.index_select(axis, torch.arange(0, x.shape[axis], s, device=x.device))
    return x


def memory_format(x: Tensor) -> torch.memory_format:
    """The format that torch's own layers would answer in."""
    if not x.is_contiguous():
        if x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last):
            return torch.channels_last
        if x.ndim == 5 and x.is_contiguous(memory_format=torch.channels_last_3d):
            return torch.channels_last_3d
    return torch.contiguous_format
