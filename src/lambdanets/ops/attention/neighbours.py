"""Windows whose weights are given: sums over the positions around every position of a map, group of channels by group.

    Y[g, c, n] = sum_o A[g, o, n] V[g, c, n + o]      over the offsets o of a window of r by s, both odd

Maps have their channels in front here, so that what runs along a row of the map lies together in memory.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from lambdanets.compat import is_transformed
from lambdanets.ops.precision import in_full_precision


def in_front(x: Float[Tensor, "b i j c"]) -> Float[Tensor, "b c i j"]:
    """A map with its channels in front, contiguous."""
    return x.movedim(-1, 1).contiguous()


def offsets(scope: tuple[int, int], spacing: tuple[float, float], like: Float[Tensor, "..."]) -> Float[Tensor, "r s 2"]:
    """The offsets of a window, those between neighbours being `spacing`.

    >>> offsets((1, 3), (1.0, 0.5), torch.zeros(1)).tolist()
    [[[0.0, -0.5], [0.0, 0.0], [0.0, 0.5]]]
    """
    along = [
        (torch.arange(side, device=like.device) - side // 2).to(like.dtype) * space
        for side, space in zip(scope, spacing, strict=True)
    ]
    return torch.stack(torch.meshgrid(*along, indexing="ij"), -1)


def around(x: Shaped[Tensor, "b c i j"], scope: tuple[int, int]) -> Shaped[Tensor, "b c r s i j"]:
    """What stands at n + o, for every offset o of the window; zeros or False outside of the map. A view of one copy."""
    r, s = scope
    padded = F.pad(x, (s // 2, s // 2, r // 2, r // 2))
    return padded.unfold(2, r, 1).unfold(3, s, 1).permute(0, 1, 4, 5, 2, 3)


def present(
    grid: tuple[int, int], scope: tuple[int, int], usable: Bool[Tensor, "#b i j"] | None, device: torch.device
) -> Bool[Tensor, "#b 1 r s i j"]:
    """Which positions of every window are on the map and may be read."""
    if usable is None:
        usable = torch.ones(1, *grid, dtype=torch.bool, device=device)
    return around(usable[:, None], scope)


@in_full_precision
def window_softmax(
    scores: Float[Tensor, "b g r s i j"], there: Bool[Tensor, "#b 1 r s i j"]
) -> Float[Tensor, "b g r s i j"]:
    """Softargmax over every window, of what is there; zeros if that is nothing."""
    # A window of nothing but -inf would be NaN, in the gradient too, so it is never made.
    masked = scores.masked_fill(~there, torch.finfo(scores.dtype).min).flatten(2, 3)
    return masked.softmax(2).reshape(scores.shape).masked_fill(~there, 0.0)


@in_full_precision
def sum_around(weights: Float[Tensor, "b g r s i j"], values: Float[Tensor, "b g c i j"]) -> Float[Tensor, "b g c i j"]:
    """The weighted sum over every window; weights of positions outside of the map count for nothing."""
    if is_transformed():  # torch.func cannot batch operations in place: the values of all offsets exist at once
        near = around(values.flatten(1, 2), (weights.shape[2], weights.shape[3])).unflatten(1, values.shape[1:3])
        return torch.einsum("bgrsij,bgcrsij->bgcij", weights, near)
    y: Tensor = _SumAround.apply(weights, values)
    return y


class _SumAround(torch.autograd.Function):
    """Offset by offset in place, where autograd would make a whole map for each of them, forward and backward."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, values: Tensor) -> Tensor:
        ctx.save_for_backward(weights, values)
        y = torch.zeros_like(values)
        for o, here, there in shifts(weights.shape[2:4], values.shape[3:]):
            y[here].addcmul_(weights[o][:, :, None][here], values[there])
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        (of_y,) = gradients
        weights, values = ctx.saved_tensors
        of_weights, of_values = torch.zeros_like(weights), torch.zeros_like(values)
        for o, here, there in shifts(weights.shape[2:4], values.shape[3:]):
            of_weights[o][:, :, None][here] = (of_y[here] * values[there]).sum(2, keepdim=True)
            of_values[there].addcmul_(weights[o][:, :, None][here], of_y[here])
        return of_weights, of_values


Index = tuple[slice | int, ...]


def shifts(scope: tuple[int, ...], grid: tuple[int, ...]) -> Iterator[tuple[Index, Index, Index]]:
    """For every offset its place in the window, the positions n for which n + o is on the map, and these n + o."""
    every = slice(None)
    for p in range(scope[0]):
        for q in range(scope[1]):
            here, there = [], []
            for extent, o in zip(grid, (p - scope[0] // 2, q - scope[1] // 2), strict=True):
                here.append(slice(max(-o, 0), min(extent, extent - o)))
                there.append(slice(max(o, 0), min(extent, extent + o)))
            if all(part.start < part.stop for part in here):
                yield (every, every, p, q), (every, every, every, *here), (every, every, every, *there)
