"""Where positions stand relative to each other: r(n, m) on grids and for given relations, and resized tables.

A grid of queries looks at a grid of context positions. Per axis, output position n at stride s and context position m
are `m - s n` apart; the table of relative embeddings R has `scope` rows per axis, the middle one for offset zero, so

    p = (m - s n) / dilation + (scope - 1) / 2

and E[n, m] = R[p], or zero where that is not a row. A global scope is a window that covers every offset of the map.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Int
from torch import Tensor

Causal = bool | Literal["strict"]


@dataclass(frozen=True)
class Grid:
    """Queries and context on grids, and the odd window of offsets that a query sees; one entry per axis everywhere.

    `causal` keeps the offsets that come earlier in raster order, and zero unless it is "strict".
    """

    context: tuple[int, ...]
    queries: tuple[int, ...]
    scope: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    causal: Causal = False

    def __post_init__(self) -> None:
        axes = {len(t) for t in (self.context, self.queries, self.scope, self.stride, self.dilation)}
        if len(axes) != 1:
            raise ValueError(f"every tuple of a Grid needs one entry per axis, got {self}")
        if any(r < 1 or r % 2 == 0 for r in self.scope):
            raise ValueError(f"scope must be positive and odd on every axis, got {self.scope}")
        if min(*self.stride, *self.dilation) < 1:
            raise ValueError(f"stride and dilation must be positive, got {self.stride} and {self.dilation}")

    @classmethod
    def of(
        cls,
        size: tuple[int, ...],
        *,
        scope: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        dilation: int | tuple[int, ...] = 1,
        causal: Causal = False,
    ) -> "Grid":
        """A map that is its own context; a single number stands for every axis.

        >>> Grid.of((5, 7), scope=3, stride=2).queries
        (3, 4)
        """
        window, step, spacing = (x if isinstance(x, tuple) else (x,) * len(size) for x in (scope, stride, dilation))
        queries = tuple(-(-n // s) for n, s in zip(size, step, strict=True))
        return cls(size, queries, window, step, spacing, causal)

    @property
    def is_shared(self) -> bool:
        """Do all examples have the same E?"""
        return True

    @property
    def n(self) -> int:
        return math.prod(self.queries)

    @property
    def m(self) -> int:
        return math.prod(self.context)

    @property
    def rows(self) -> int:
        """How many rows its table has."""
        return math.prod(self.scope)


@dataclass(frozen=True, eq=False)
class Relation:
    """A general relation: `index[n, m]`, or one per example, names the row of the table."""

    index: Int[Tensor, "... n m"]

    def __post_init__(self) -> None:
        dtype = self.index.dtype if isinstance(self.index, Tensor) else type(self.index).__name__
        if dtype not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
            raise ValueError(f"relation must be a tensor of integers, got {dtype}")

    @property
    def is_shared(self) -> bool:
        """Do all examples have the same E?"""
        return self.index.ndim == 2 or self.index.shape[0] == 1


Geometry = Grid | Relation


def coordinates(size: tuple[int, ...], flat: Int[Tensor, "n"]) -> list[Int[Tensor, "n"]]:
    """The coordinate of each flat raster position along every axis."""
    along = []
    for extent in reversed(size):
        along.append(flat % max(extent, 1))
        flat = flat // max(extent, 1)
    return along[::-1]


def relative_index(grid: Grid, at: Int[Tensor, "n"]) -> Int[Tensor, "n m"]:
    """r(n, m) for the query positions `at`, -1 where the pair is out of scope.

    >>> relative_index(Grid.of((4,), scope=3), torch.arange(4)).tolist()
    [[1, 2, -1, -1], [0, 1, 2, -1], [-1, 0, 1, 2], [-1, -1, 0, 1]]
    """
    queries = coordinates(grid.queries, at)
    context = coordinates(grid.context, torch.arange(grid.m, device=at.device))
    index = torch.zeros(1, 1, dtype=torch.long, device=at.device)
    inside = torch.ones(1, 1, dtype=torch.bool, device=at.device)
    for n, m, r, s, d in zip(queries, context, grid.scope, grid.stride, grid.dilation, strict=True):
        offset = m[None, :] - s * n[:, None]
        along = offset // d + (r - 1) // 2
        inside = inside & (offset % d == 0) & (along >= 0) & (along < r)
        index = index * r + along
    if grid.causal:
        inside = inside & (index < past_rows(grid))
    return torch.where(inside, index, -1)


def past_rows(grid: Grid) -> int:
    """How many rows of the table belong to the past: rows stand in raster order of their offset, zero in the middle."""
    return grid.rows // 2 if grid.causal == "strict" else grid.rows // 2 + 1


def past(grid: Grid, at: Int[Tensor, "n"]) -> Bool[Tensor, "n m"]:
    """Which context positions the causal queries `at` may use: up to their own in raster order, before it if strict."""
    radix = [max(m, s * n) for m, n, s in zip(grid.context, grid.queries, grid.stride, strict=True)]

    def order(along: list[Int[Tensor, "i"]]) -> Int[Tensor, "i"]:
        place = torch.zeros_like(along[0])
        for base, i in zip(radix, along, strict=True):
            place = place * base + i
        return place

    steps = zip(grid.stride, coordinates(grid.queries, at), strict=True)
    now = order([s * i for s, i in steps])[:, None]
    then = order(coordinates(grid.context, torch.arange(grid.m, device=at.device)))[None, :]
    return then < now if grid.causal == "strict" else then <= now


def embeddings(table: Float[Tensor, "p k u"], geometry: Geometry, at: Int[Tensor, "n"]) -> Float[Tensor, "#b n m k u"]:
    """E[n, m] = R[r(n, m)] for the query positions `at`."""
    if isinstance(geometry, Relation):
        index = geometry.index.index_select(-2, at)
    else:
        index = relative_index(geometry, at)
        # A row of zeros stands behind the table for the pairs that have no row in it.
        index = torch.where(index < 0, geometry.rows, index)
        table = torch.cat([table, table.new_zeros(1, *table.shape[1:])])
    index = index if index.ndim == 3 else index[None]
    embedded: Tensor = F.embedding(index.long(), table.flatten(1)).unflatten(-1, table.shape[1:])
    return embedded


def reachable_scope(grid: Grid) -> tuple[int, ...]:
    """The window cut to the offsets that exist on the grid's maps.

    >>> reachable_scope(Grid.of((3, 5), scope=7))
    (5, 7)
    """
    axes = zip(grid.scope, grid.context, grid.queries, grid.stride, grid.dilation, strict=True)
    return tuple(min(r, 2 * (max(m - 1, s * (n - 1), 0) // d) + 1) for r, m, n, s, d in axes)


def reachable(grid: Grid, table: Float[Tensor, "p k u"]) -> tuple[Grid, Float[Tensor, "q k u"]]:
    """The same grid with its reachable window, and the rows of the table that are left."""
    scope = reachable_scope(grid)
    if scope == grid.scope:
        return grid, table
    return replace(grid, scope=scope), crop_table(table, grid.scope, scope)


def crop_table(table: Float[Tensor, "p k u"], old: tuple[int, ...], new: tuple[int, ...]) -> Float[Tensor, "q k u"]:
    """The rows of the offsets that a smaller window `new` has; none of them changes."""
    window = table.reshape(*old, *table.shape[1:])
    for axis, (r, s) in enumerate(zip(old, new, strict=True)):
        window = window.narrow(axis, (r - s) // 2, s)
    return window.reshape(math.prod(new), *table.shape[1:])


def resize_table(table: Float[Tensor, "p k u"], old: tuple[int, ...], new: tuple[int, ...]) -> Float[Tensor, "q k u"]:
    """Stretch a table of relative embeddings from scope `old` to scope `new`, linearly along every axis.

    Offset zero stays at zero and the outermost offsets stay outermost, as when the map is scaled. A table of the
    same scope is returned as it is.

    >>> resize_table(torch.tensor([0.0, 1.0, 4.0]).reshape(3, 1, 1), (3,), (5,)).flatten().tolist()
    [0.0, 0.5, 1.0, 2.5, 4.0]
    """
    window = table.reshape(*old, *table.shape[1:])
    for axis, (r, s) in enumerate(zip(old, new, strict=True)):
        if r == s:
            continue
        offset = torch.arange(s, device=table.device, dtype=torch.float64) - s // 2
        place = r // 2 + offset * ((r // 2) / max(s // 2, 1))
        lower = place.floor().clamp(0, r - 1).long()
        upper = (lower + 1).clamp(max=r - 1)
        shape = [1] * window.ndim
        shape[axis] = s
        share = (place - lower).to(table.dtype).reshape(shape)
        window = torch.lerp(window.index_select(axis, lower), window.index_select(axis, upper), share)
    return window.reshape(math.prod(new), *table.shape[1:])
