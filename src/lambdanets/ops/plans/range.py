"""The dynamic range of an example: whether Fourier transforms compute its position term accurately.

A transform spreads its rounding errors over the whole map, so outputs among small values lose digits to large values
that their windows do not contain. `kernels/native/range.h` has the same measure and says where it comes from.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float
from torch import Tensor

from lambdanets.ops.geometry import Grid

# Calibrated on random and adversarial maps (tools/calibrate_range.py), not proven.
LIMIT, FLOOR = 2.0, 16.0
TINY = torch.finfo(torch.float64).tiny


class Loudness(NamedTuple):
    """Of every example: sums of squares at its positions, in windows of them, and which windows are all zero."""

    positions: Float[Tensor, "b i"]
    windows: Float[Tensor, "b j"]
    blank: Bool[Tensor, "b j"]

    @property
    def norm(self) -> Float[Tensor, "b"]:
        return self.positions.sum(1).sqrt()

    @property
    def absolute(self) -> Float[Tensor, "b"]:
        return self.positions.sqrt().sum(1)


def limit_of(given: torch.dtype, transformed: torch.dtype) -> float:
    """The range up to which transforms in one precision are accurate enough for numbers of another."""
    return LIMIT * torch.finfo(given).eps / torch.finfo(transformed).eps


def of_values(values: Float[Tensor, "b m v u"], grid: Grid) -> Loudness:
    """The values, in the windows of the queries."""
    energy = energies(values.flatten(2))
    windows = query_windows(energy.unflatten(1, grid.context), grid).flatten(1)
    return Loudness(energy, windows, windows == 0)


def of_gradients(q: Float[Tensor, "b n h k"], dy: Float[Tensor, "b n h v"], grid: Grid) -> Loudness:
    """dlambda[n] = sum_h q[n,h] dy[n,h], as if heads were orthogonal, in the windows of the context positions."""
    of_q, of_dy = energies(q), energies(dy)
    energy = torch.where((of_q > 0) & (of_dy > 0), (of_q * of_dy).clamp(min=TINY), of_q * of_dy).sum(2)
    windows = context_windows(energy.unflatten(1, grid.queries), grid).flatten(1)
    return Loudness(energy, windows, windows == 0)


def energies(x: Float[Tensor, "*rows c"]) -> Float[Tensor, "*rows"]:
    """Sums of squares; never 0 for a row that is not, even if its squares are too small."""
    squares = x.double().square().sum(-1)
    return torch.where((squares == 0) & (x != 0).any(-1), TINY, squares)


def spread_of(loudness: Loudness, gain: Float[Tensor, ""], points: int) -> Float[Tensor, "b"]:
    """The rounding error of a map's transforms, in units of the quietest window; Inf or NaN if some of it is."""
    least = loudness.windows.masked_fill(loudness.blank, math.inf).amin(1).sqrt()
    error = loudness.norm * ((gain + FLOOR) / points).sqrt()
    return torch.where(loudness.norm == 0, 0.0, error / torch.where(error.isfinite(), least, 0.0))


def table_spread_of(values: Loudness, gradients: Loudness, points: int) -> Float[Tensor, "b"]:
    """The same for the gradient of the table: a correlation, whose error Young's inequality bounds."""
    seen = (gradients.positions * values.windows).sqrt().sum(1)
    error = torch.minimum(values.absolute * gradients.norm, gradients.absolute * values.norm) * (2 / math.sqrt(points))
    return torch.where(error == 0, 0.0, error / torch.where(error.isfinite(), seen, 0.0))


def query_windows(x: Float[Tensor, "b *m"], grid: Grid) -> Float[Tensor, "b *n"]:
    """For every query the sum over the context positions in its window."""
    axes = zip(grid.context, grid.queries, grid.scope, grid.stride, grid.dilation, strict=True)
    for axis, (m, n, r, s, d) in enumerate(axes, start=1):
        extent = s * (n - 1) + 1
        padded = F.pad(x.movedim(axis, -1), (d * (r // 2), extent + d * (r - 1) - d * (r // 2) - m))
        x = window_sums(padded, r, d)[..., ::s].movedim(-1, axis)
    return x


def context_windows(x: Float[Tensor, "b *n"], grid: Grid) -> Float[Tensor, "b *m"]:
    """For every context position the sum over the queries whose windows it is in."""
    axes = zip(grid.context, grid.queries, grid.scope, grid.stride, grid.dilation, strict=True)
    for axis, (m, n, r, s, d) in enumerate(axes, start=1):
        x = x.movedim(axis, -1)
        apart = x.new_zeros(*x.shape[:-1], s * (n - 1) + 1)
        apart[..., ::s] = x
        padded = F.pad(apart, (d * (r // 2), m + d * (r - 1) - d * (r // 2) - apart.shape[-1]))
        x = window_sums(padded, r, d).movedim(-1, axis)
    return x


def window_sums(x: Float[Tensor, "*b l"], r: int, dilation: int) -> Float[Tensor, "*b i"]:
    """sum_t x[i + dilation t] over r numbers, by doubling: a difference of running sums would drown small windows.

    >>> window_sums(torch.tensor([1.0, 2.0, 4.0, 8.0]), 3, 1).tolist()
    [7.0, 14.0]
    """
    length = x.shape[-1] - dilation * (r - 1)
    total = x.new_zeros(*x.shape[:-1], length)
    start, width = 0, 1  # x holds the sums of `width` numbers
    while True:
        if r & width:
            total = total + x.narrow(-1, dilation * start, length)
            start += width
        if 2 * width > r:
            return total
        further = x.shape[-1] - dilation * width
        x = x.narrow(-1, 0, further) + x.narrow(-1, dilation * width, further)
        width *= 2
