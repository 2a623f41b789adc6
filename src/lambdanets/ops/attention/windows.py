"""Attention in windows: a query reads the positions around it, and those outside of the map do not exist.

    Y_n = sum_o softargmax_o(beta q_n . (k_(n + o) + r_o)) v_(n + o)      over the offsets o of a window of odd sides

The map is cut into tiles. All queries of a tile read the same piece of the map, the tile and what its windows reach
around it, in one ordinary attention that is masked to the windows. The pieces overlap, but neither a patch for each
query nor a score for each pair of the map exists.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from lambdanets.ops.attention.attend import weighted
from lambdanets.ops.attention.positions import relative_scores
from lambdanets.ops.attention.scores import dot_scores
from lambdanets.ops.pairs import over_queries
from lambdanets.ops.precision import in_full_precision

# The side of a tile: larger ones compute more scores that no window has, smaller ones copy more of the map around them.
SIDE = 7


@in_full_precision
def attend_locally(
    q: Float[Tensor, "b *grid h k"],
    keys: Float[Tensor, "b *grid h k"],
    values: Float[Tensor, "b *grid h v"],
    *,
    scope: Sequence[int],
    tables: Sequence[Float[Tensor, "_ k"]] = (),
    usable: Bool[Tensor, "#b *grid"] | None = None,
    causal: bool = False,
) -> Float[Tensor, "b *grid h v"]:
    """Soft attention of every position to the window around it, beta = k^-1/2; zeros where there is nothing to read.

    Some rows of tiles are evaluated at a time, and again in the backward pass, so that autograd keeps the inputs only.

    Args:
        scope: the odd side of the window along each axis.
        tables: for each axis the embeddings r of its offsets, `scope` rows; r_o is their sum. None of them if empty.
        usable: which positions may be read.
        causal: a position reads those up to itself in raster order.
    """
    b, *grid, h, k = q.shape
    tiling = Tiling.of(grid, scope)
    sides, reach, pieces = tiling.sides, tiling.reach, tiling.pieces
    if usable is None:
        may = torch.ones(1, *grid, dtype=torch.bool, device=q.device)
    else:  # what stands at positions that may not be used, NaN included, reaches nothing
        may, left_out = usable, ~usable[..., None, None]
        keys, values = keys.masked_fill(left_out, 0.0), values.masked_fill(left_out, 0.0)
    none = [0] * len(grid)
    padded_q = pad(q * k**-0.5, sides, none)
    padded = [pad(x, sides, reach) for x in (keys, values, may.expand(b, *grid))]
    windows = in_window(sides, reach, causal, q.device)
    rows = 2 * max(pieces) - 1
    stretched = [stretch(table.to(q.dtype), margin, rows) for table, margin in zip(tables, reach, strict=bool(tables))]

    def some_rows(part: slice) -> Float[Tensor, "b c _ v"]:
        first, last = part.start * sides[0], part.stop * sides[0]
        q_ = tiles(padded_q[:, first:last], sides, none)
        keys_, values_, may_ = (tiles(x[:, first : last + 2 * reach[0]], sides, reach) for x in padded)
        scores, seen = dot_scores(q_, keys_), (windows & may_[:, None])[:, None]
        if stretched:
            scores = scores + relative_scores(q_, stretched, sides, pieces)
        # A row of nothing but -inf would be NaN, in the gradient too, so it is never made.
        y = weighted(scores.masked_fill(~seen, torch.finfo(scores.dtype).min).softmax(-1), values_)
        if usable is not None:
            y = y.masked_fill(~seen.any(-1).transpose(1, 2)[..., None], 0.0)
        return y.reshape(b, part.stop - part.start, in_a_row * h, y.shape[-1])

    in_a_row = math.prod([*tiling.counts[1:], *sides])
    y = over_queries(some_rows, tiling.counts[0], per_query=b * h * in_a_row * math.prod(pieces))
    return joined(y.reshape(b, *tiling.counts, *sides, h, y.shape[-1]), grid)


class Tiling(NamedTuple):
    """How a map is cut, axis by axis: how many tiles, their sides, and how far their windows reach around them."""

    counts: list[int]
    sides: list[int]
    reach: list[int]

    @classmethod
    def of(cls, grid: Sequence[int], scope: Sequence[int]) -> "Tiling":
        """Tiles of equal size, no smaller than what surrounds them; windows are cut to what a map can have.

        >>> Tiling.of((14, 9), (7, 7))
        Tiling(counts=[2, 2], sides=[7, 5], reach=[3, 3])
        """
        reach = [min(r // 2, n - 1) for r, n in zip(scope, grid, strict=True)]
        counts = [-(-n // max(SIDE, margin)) for n, margin in zip(grid, reach, strict=True)]
        return cls(counts, [-(-n // c) for n, c in zip(grid, counts, strict=True)], reach)

    @property
    def pieces(self) -> list[int]:
        """The sides of tiles with what is around them."""
        return [side + 2 * margin for side, margin in zip(self.sides, self.reach, strict=True)]


def pad(x: Shaped[Tensor, "b *grid_c"], sides: Sequence[int], reach: Sequence[int]) -> Shaped[Tensor, "b *padded_c"]:
    """The map filled up to whole tiles, with what they reach around it: zeros, or False."""
    axes = len(sides)
    padding = [0] * 2 * (x.ndim - 1 - axes)
    for n, side, margin in zip(reversed(x.shape[1 : 1 + axes]), reversed(sides), reversed(reach), strict=True):
        padding += [margin, margin + -n % side]
    return F.pad(x, padding)


def tiles(x: Shaped[Tensor, "b *padded_c"], sides: Sequence[int], reach: Sequence[int]) -> Shaped[Tensor, "t n *c"]:
    """A padded map cut into tiles, each with what is within reach of it, as a batch of flat pieces."""
    axes = len(sides)
    for axis, (side, margin) in enumerate(zip(sides, reach, strict=True), start=1):
        x = x.unfold(axis, side + 2 * margin, side)
    x = x.movedim(tuple(range(-axes, 0)), tuple(range(1 + axes, 1 + 2 * axes)))
    return x.flatten(0, axes).flatten(1, axes)


def joined(y: Float[Tensor, "b *counts_sides h v"], grid: Sequence[int]) -> Float[Tensor, "b *grid h v"]:
    """The map that tiles make, without what filled up the last of them."""
    axes = len(grid)
    y = y.permute(0, *(1 + axis + axes * part for axis in range(axes) for part in (0, 1)), -2, -1)
    for axis, n in enumerate(grid, start=1):
        y = y.flatten(axis, axis + 1).narrow(axis, 0, n)
    return y.contiguous()


def stretch(table: Float[Tensor, "p k"], margin: int, rows: int) -> Float[Tensor, "rows k"]:
    """A row for every offset between a query of a tile and its piece of the map, zeros for those in no window.

    The piece begins `margin` before its tile, so offset zero stands that far behind the middle.
    """
    before = rows // 2 + margin - table.shape[0] // 2
    return F.pad(table, (0, 0, before, rows - before - table.shape[0]))


def in_window(sides: Sequence[int], reach: Sequence[int], causal: bool, device: torch.device) -> Bool[Tensor, "1 n m"]:
    """Which positions of a piece are in the window of which query of its tile."""
    axes = len(sides)
    inside = torch.ones([1] * 2 * axes, dtype=torch.bool, device=device)
    earlier, level = ~inside, inside
    for axis, (side, margin) in enumerate(zip(sides, reach, strict=True)):
        piece = side + 2 * margin
        shape = [1] * 2 * axes
        shape[axis], shape[axes + axis] = side, piece
        offset = torch.arange(piece, device=device) - torch.arange(side, device=device)[:, None] - margin
        offset = offset.reshape(shape)
        inside = inside & (offset.abs() <= margin)
        earlier, level = earlier | (level & (offset < 0)), level & (offset == 0)
    if causal:
        inside = inside & (earlier | level)
    return inside.reshape(1, math.prod(sides), -1)
