"""How maps lie in memory."""

import torch
from jaxtyping import Shaped
from torch import Tensor


def every(stride: tuple[int, ...], x: Shaped[Tensor, "b *grid"]) -> Shaped[Tensor, "b *strided"]:
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
