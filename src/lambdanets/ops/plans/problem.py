"""What a plan is asked to compute, and what that costs on a device."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from lambdanets.kernels import unsupported
from lambdanets.ops.geometry import Geometry, Grid
from lambdanets.ops.masks import Allowed

UNMASKED = Allowed()


@dataclass(frozen=True, eq=False)
class Inputs:
    """Of a position term; rows that no query may use are already zero in `values`."""

    q: Float[Tensor, "b n h k"]
    values: Float[Tensor, "b m v u"]
    table: Float[Tensor, "p k u"]
    geometry: Geometry
    allowed: Allowed = UNMASKED
    content: Float[Tensor, "b k v"] | None = None  # content lambdas, for plans that apply them in the same pass


@dataclass(frozen=True)
class Problem:
    """The sizes and circumstances of one position term: all that the choice of a plan depends on."""

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
    no_kernels: str | None  # why the kernels cannot be used for it

    @classmethod
    def of(cls, inputs: Inputs) -> "Problem":
        q, values, table, pairs = inputs.q, inputs.values, inputs.table, inputs.allowed.pairs
        b, n, h, k = q.shape
        _, m, v, u = values.shape
        per_example = pairs is not None and pairs.shape[0] > 1
        trains = torch.is_grad_enabled() and any(t.requires_grad for t in (q, values, table))
        dtype = q.dtype if q.dtype == values.dtype == table.dtype else None
        where = (q.device, dtype, unsupported(q.device, dtype))
        return cls(b, n, m, h, k, v, u, inputs.geometry, pairs is not None, per_example, trains, *where)

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


class Rates(NamedTuple):
    """Seconds that a device takes for each part of a cost. Only their ratios and the plans' own factors decide."""

    multiply: float
    byte: float
    operation: float


# Of one CPU with 2 threads, measured.
CPU = Rates(multiply=1.2e-11, byte=2.5e-10, operation=1e-5)
# Of GPUs and whatever else there is: beside a CPU, arithmetic gets cheaper by more than memory does, and starting an
# operation hardly. From the data sheet of an A100 (float32, half of the peak), not measured.
ACCELERATOR = Rates(multiply=2e-13, byte=1e-12, operation=8e-6)
RATES = {"cpu": CPU}


class Cost(NamedTuple):
    """What a plan takes."""

    multiplies: float  # multiply-adds, each worth one of a large matrix product
    bytes: float  # moved outside of such products
    operations: float = 0  # small ones, of which only the start counts

    def seconds(self, device: torch.device) -> float:
        rates = RATES.get(device.type, ACCELERATOR)
        return self.multiplies * rates.multiply + self.bytes * rates.byte + self.operations * rates.operation


def _pairs_along(m: int, n: int, r: int, s: int, d: int) -> int:
    """About how many pairs one axis has: a window for each query, less what hangs over the two ends of the map."""
    reach = min(r // 2, (m - 1) // d)
    return max(n * (2 * reach + 1) - reach * (reach + 1) * d // s, n)
