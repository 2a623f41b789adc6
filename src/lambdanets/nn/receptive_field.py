"""Who stands where, and who may use what, in one forward pass."""

from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lambdanets.ops.geometry import Geometry, Grid, Relation, past
from lambdanets.ops.masks import Allowed, read_mask


class ReceptiveField(NamedTuple):
    """The geometry of one forward pass and what its mask and causality permit."""

    grid: Grid  # causal if the terms must see to it themselves, not if `allowed` contains it already
    geometry: Geometry
    allowed: Allowed
    usable: Bool[Tensor, "#b m"] | None  # the context rows that some query may use, None for all

    def pairs(self, at: Int[Tensor, "a"]) -> Bool[Tensor, "#b a m"] | None:
        """What each of the queries `at` may use, None if that is the same for all queries."""
        if self.grid.causal:
            return self.allowed.both(past(self.grid, at)).pairs
        return None if self.allowed.pairs is None else self.allowed.pairs[:, at]


def receptive_field(
    grid: Grid,
    b: int,
    mask: Bool[Tensor, "..."] | None,
    relation: Int[Tensor, "... n m"] | None,
    *,
    has_content: bool,
    device: torch.device,
) -> ReceptiveField:
    """Combine a causal grid with the caller's mask and relation.

    Both terms are fast for plain causal order, the content term only where queries and context are the same
    positions. Whatever else there is becomes a mask of pairs.
    """
    allowed = read_mask(mask, b, grid.n, grid.m)
    if grid.causal:
        same = grid.queries == grid.context and max(grid.stride) == 1
        if relation is not None or allowed.pairs is not None or (has_content and not same):
            allowed = allowed.both(past(grid, torch.arange(grid.n, device=device)))
            grid = replace(grid, causal=False)
    usable = allowed.usable()
    if grid.causal and (grid.causal == "strict" or not same):
        # The last query may use whatever any may.
        last = past(grid, torch.arange(grid.n, device=device)[-1:]).any(0)[None]
        usable = last if usable is None else usable & last
    return ReceptiveField(grid, grid if relation is None else Relation(relation), allowed, usable)
