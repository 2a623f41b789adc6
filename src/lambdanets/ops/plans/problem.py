"""What a plan is, and what it is asked to compute."""

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from lambdanets.ops.geometry import Geometry, Grid
from lambdanets.ops.masks import Allowed

# A multiply-add of a large matrix product and a byte moved, in seconds on one CPU with 2 threads. Only their ratio and
# the plans' own factors decide anything.
PER_MULTIPLY = 1.2e-11
PER_BYTE = 2.5e-10


class Cost(NamedTuple):
    """Multiply-adds, each worth one of a large matrix product, and bytes moved outside of such products."""

    multiplies: float
    bytes: float

    @property
    def seconds(self) -> float:
        return self.multiplies * PER_MULTIPLY + self.bytes * PER_BYTE


@dataclass(frozen=True, eq=False)
class Problem:
    """The sizes and circumstances of one position term."""

    b: int
    n: int
    m: int
    h: int
    k: int
    v: int
    u: int
    geometry: Geometry
    pairs: bool  # does a mask differ between queries?
    per_example: bool  # does that mask differ between examples too?
    trains: bool  # will there be a backward pass?
    device: torch.device
    dtype: torch.dtype | None  # of all tensors, None if they differ

    @classmethod
    def of(
        cls,
        q: Float[Tensor, "b n h k"],
        values: Float[Tensor, "b m v u"],
        table: Float[Tensor, "p k u"],
        geometry: Geometry,
        allowed: Allowed,
    ) -> "Problem":
        b, n, h, k = q.shape
        _, m, v, u = values.shape
        per_example = allowed.pairs is not None and allowed.pairs.shape[0] > 1
        trains = torch.is_grad_enabled() and any(t.requires_grad for t in (q, values, table))
        dtype = q.dtype if q.dtype == values.dtype == table.dtype else None
        return cls(b, n, m, h, k, v, u, geometry, allowed.pairs is not None, per_example, trains, q.device, dtype)

    @property
    def no_windows(self) -> str | None:
        """The reason why this is not the same window for every query of a map, or None if it is."""
        if not isinstance(self.geometry, Grid):
            return "a general relation has no windows"
        if self.pairs:
            return "a mask that differs between queries cuts their windows differently"
        if self.b * self.n * self.m == 0:
            return "there is nothing to look at"
        return None

    @property
    def passes(self) -> int:
        """Products to compute: one forward, two more backward."""
        return 3 if self.trains else 1

    @property
    def pairs_in_scope(self) -> int:
        """About how many (query, context) pairs have an embedding."""
        if not isinstance(self.geometry, Grid):
            return self.n * self.m
        g = self.geometry
        axes = zip(g.context, g.queries, g.scope, g.stride, g.dilation, strict=True)
        return math.prod([_pairs_along(*axis) for axis in axes])


@runtime_checkable
class Plan(Protocol):
    """An exact way to compute the position term, for what it supports."""

    name: str

    def supports(self, problem: Problem) -> str | None:
        """None, or the reason why not."""

    def automatic(self, problem: Problem) -> bool:
        """Whether it may be chosen where no plan is forced."""

    def cost(self, problem: Problem) -> Cost:
        """What the plan takes, for choosing between plans."""

    def run(
        self,
        q: Float[Tensor, "b n h k"],
        values: Float[Tensor, "b m v u"],
        table: Float[Tensor, "p k u"],
        geometry: Geometry,
        allowed: Allowed,
    ) -> Float[Tensor, "b n h v"]:
        """The position term; rows that no query may use are already zero in `values`."""


def _pairs_along(m: int, n: int, r: int, s: int, d: int) -> int:
    """About how many pairs one axis has: a window for each query, less what hangs over the two ends of the map."""
    reach = min(r // 2, (m - 1) // d)
    return max(n * (2 * reach + 1) - reach * (reach + 1) * d // s, n)
