"""The position lambdas of a grid by Fourier transforms: O(n log n), whatever the scope.

On a grid, lp[x] = sum_o R[o] V[x + o] is a correlation, so its transform is that of V times the conjugate of R's. Maps
are padded until no window wraps around. One k at a time, each computed again in the backward pass: the lambdas of all
k at once would be k times the activations.

Transforms are in float64, and examples whose dynamic range is too large even for these (`range.py`) are computed
directly: an output depends on nothing outside its window, not even through rounding, NaN or Inf.
"""

import math
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lambdanets.compat import is_transformed
from lambdanets.kernels.operators import gradients_of
from lambdanets.ops.geometry import Grid, reachable
from lambdanets.ops.plans import range as dynamic_range
from lambdanets.ops.plans.convolution import Convolution
from lambdanets.ops.plans.lambda_first import LambdaFirst
from lambdanets.ops.plans.plan import Plan
from lambdanets.ops.plans.problem import Cost, Inputs, Problem
from lambdanets.ops.plans.query_first import QueryFirst

Gradients = tuple[Float[Tensor, "b n h k"], Float[Tensor, "b m v u"], Float[Tensor, "p k u"]]


class Fourier(Plan):
    """Transforms of V and R, a product, and one transform back for each k."""

    name = "fft"

    def supports(self, problem: Problem) -> str | None:
        if isinstance(problem.geometry, Grid) and problem.geometry.causal:
            return "rounding in the transforms would let a trace of the future through"
        return super().supports(problem) or problem.no_windows

    def automatic(self, problem: Problem) -> bool:
        # Whoever traces cannot look at the dynamic range, and elsewhere the look would wait for the device.
        return problem.device.type == "cpu" and not torch.compiler.is_compiling() and not is_transformed()

    def cost(self, problem: Problem) -> Cost:
        p = problem
        assert isinstance(p.geometry, Grid)
        points = math.prod(lengths(p.geometry))
        transforms = (p.b * p.v * (p.u + p.k) + p.k * p.u) * points * 2.5 * math.log2(points + 1)
        products = p.b * p.v * p.k * (2 * p.u * points + p.n * p.h)
        # Backward, everything is computed once more and then twice. The operations are many and small.
        operations = p.k * (225 if p.trains else 32.5)
        return Cost((4 if p.trains else 1) * (5 * transforms + 3 * products), 0, operations)

    def run(self, inputs: Inputs) -> Float[Tensor, "b n h v"]:
        assert isinstance(inputs.geometry, Grid)
        grid, table = reachable(inputs.geometry, inputs.table)
        if torch.compiler.is_compiling() or is_transformed():
            return Spectra(inputs.values, table, grid).term(inputs.q)
        y: Tensor = FourierTerm.apply(inputs.q, inputs.values, table, grid)
        return y


class FourierTerm(torch.autograd.Function):
    """The position term and its gradients, of which autograd keeps the inputs only."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, values: Tensor, table: Tensor, grid: Grid) -> Float[Tensor, "b n h v"]:
        ctx.save_for_backward(q, values, table)
        ctx.grid = grid
        spectra, seen = Spectra(values, table, grid), dynamic_range.of_values(values, grid)
        y = spectra.term(q, seen.blank)
        fits = spectra.fits(seen) if q.device.type == "cpu" else None
        if fits is not None and not fits.all():
            y[~fits] = direct_term(q[~fits], values[~fits], table, grid)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
        q, values, table = ctx.saved_tensors
        if torch.is_grad_enabled():  # for second derivatives: without transforms, whose range is not checked there
            return gradients_of(direct_term, (q, values, table, ctx.grid), dy)
        spectra, seen = Spectra(values, table, ctx.grid), dynamic_range.of_values(values, ctx.grid)
        given = dynamic_range.of_gradients(q, dy, ctx.grid)
        fits = spectra.fits(seen, given) if q.device.type == "cpu" else None
        if fits is None or fits.all():
            return *spectra.gradients(q, dy, seen.blank, given.blank), None
        if not fits.any():
            return *direct_gradients(q, values, table, ctx.grid, dy), None
        dq, dvalues = torch.empty_like(q), torch.empty_like(values)
        some = Spectra(values[fits], table, ctx.grid)
        dq[fits], dvalues[fits], dtable = some.gradients(q[fits], dy[fits], seen.blank[fits], given.blank[fits])
        dq[~fits], dvalues[~fits], more = direct_gradients(q[~fits], values[~fits], table, ctx.grid, dy[~fits])
        return dq, dvalues, dtable + more, None


class Spectra:
    """The transforms of the values (b, v, u, *l) and, conjugate, of the table (k, u, *l) on padded maps."""

    def __init__(self, values: Float[Tensor, "b m v u"], table: Float[Tensor, "p k u"], grid: Grid) -> None:
        self.grid, self.size, self.axes = grid, lengths(grid), tuple(range(-len(grid.scope), 0))
        self.dtype = torch.promote_types(values.dtype, table.dtype)
        # float64 leaves enough of small outputs beside large ones; only Apple's devices do not have it.
        wide = self.dtype if values.device.type == "mps" else torch.float64
        b, _, v, u = values.shape
        maps = values.permute(0, 2, 3, 1).reshape(b, v, u, *grid.context).to(wide)
        kernels = table.permute(1, 2, 0).reshape(table.shape[1], u, *grid.scope).to(wide)
        self.values = torch.fft.rfftn(maps, self.size, dim=self.axes)
        self.table = torch.fft.rfftn(wrapped(kernels, grid, self.size), dim=self.axes).conj()

    def lambdas(self, k: int, blank: Bool[Tensor, "b n"] | None = None) -> Float[Tensor, "b n v"]:
        """Those of one k, exactly zero in windows that are."""
        maps = torch.fft.irfftn((self.values * self.table[k]).sum(2), self.size, dim=self.axes)
        at_queries = zip(self.grid.stride, self.grid.queries, strict=True)
        lambdas: Tensor = maps[(..., *(slice(0, s * n, s) for s, n in at_queries))].flatten(2).transpose(1, 2)
        return lambdas if blank is None else lambdas.masked_fill(blank[..., None], 0.0)

    def term(self, q: Float[Tensor, "b n h k"], blank: Bool[Tensor, "b n"] | None = None) -> Float[Tensor, "b n h v"]:
        y = q.new_zeros(*q.shape[:3], self.values.shape[1], dtype=self.values.real.dtype)
        for k in range(q.shape[3]):
            y = y + q[..., k, None] * self.lambdas(k, blank)[:, :, None]
        return y.to(torch.promote_types(q.dtype, self.dtype))

    def gradients(
        self,
        q: Float[Tensor, "b n h k"],
        dy: Float[Tensor, "b n h v"],
        blank: Bool[Tensor, "b n"],
        unreached: Bool[Tensor, "b m"],
    ) -> Gradients:
        """Of q, the values and the table; those of the values are exactly zero where no gradient reaches them."""
        grid, wide = self.grid, self.values.real.dtype
        dq, dvalues = q.new_empty(q.shape, dtype=wide), torch.zeros_like(self.values)
        dtable = q.new_empty(*self.table.shape[:2], grid.rows, dtype=wide)
        dy = dy.to(wide)
        b, v, u = self.values.shape[:3]
        for k in range(q.shape[3]):
            dq[..., k] = torch.einsum("bnhv,bnv->bnh", dy, self.lambdas(k, blank))
            dlambdas = torch.einsum("bnh,bnhv->bvn", q[..., k].to(wide), dy).unflatten(-1, grid.queries)
            spread = torch.fft.rfftn(apart(dlambdas, grid), self.size, dim=self.axes)[:, :, None]
            dvalues += spread * self.table[k].conj()
            correlated = torch.fft.irfftn((spread.conj() * self.values).sum((0, 1)), self.size, dim=self.axes)
            dtable[k] = unwrapped(correlated, grid, self.size).flatten(1)
        on_map = tuple(slice(0, m) for m in grid.context)
        maps = torch.fft.irfftn(dvalues, self.size, dim=self.axes)[(..., *on_map)]
        given = maps.reshape(b, v, u, grid.m).permute(0, 3, 1, 2).masked_fill(unreached[:, :, None, None], 0.0)
        return dq.to(q.dtype), given.to(self.dtype), dtable.permute(2, 0, 1).to(self.dtype)

    def fits(self, seen: dynamic_range.Loudness, given: dynamic_range.Loudness | None = None) -> Bool[Tensor, "b"]:
        """The examples whose dynamic range is small enough, backward that of the gradients too."""
        points, gain = math.prod(self.size), self.gain()
        limit = dynamic_range.limit_of(self.dtype, self.values.real.dtype)
        fits = dynamic_range.spread_of(seen, gain, points) <= limit
        if given is not None:
            fits &= dynamic_range.spread_of(given, gain, points) <= limit
            fits &= dynamic_range.table_spread_of(seen, given, points) <= limit
        return fits

    def gain(self) -> Float[Tensor, ""]:
        """The largest square of the table's spectrum, in units of the table's own."""
        largest = self.table.abs().square().flatten(2).amax(2).sum()  # half of a spectrum has the largest of the whole
        energy = torch.fft.irfftn(self.table, self.size, dim=self.axes).square().sum()
        return torch.where(energy == 0, 0.0, largest / energy)


def direct_term(
    q: Float[Tensor, "b n h k"], values: Float[Tensor, "b m v u"], table: Float[Tensor, "p k u"], grid: Grid
) -> Float[Tensor, "b n h v"]:
    """The same without transforms, by the cheapest of the other plans."""
    inputs = Inputs(q, values, table, grid)
    problem = Problem.of(inputs)
    others: list[Plan] = [Convolution(), LambdaFirst(), QueryFirst()]
    return min(others, key=lambda plan: plan.seconds(problem)).run(inputs)


def direct_gradients(
    q: Float[Tensor, "b n h k"],
    values: Float[Tensor, "b m v u"],
    table: Float[Tensor, "p k u"],
    grid: Grid,
    dy: Float[Tensor, "b n h v"],
) -> Gradients:
    with torch.enable_grad():
        q, values, table = (t.detach().requires_grad_() for t in (q, values, table))
        dq, dvalues, dtable = torch.autograd.grad(direct_term(q, values, table, grid), [q, values, table], dy)
    return dq, dvalues, dtable


def lengths(grid: Grid) -> tuple[int, ...]:
    """Per axis, a length that transforms fast and on which no window wraps around into the map."""
    axes = zip(grid.context, grid.queries, grid.scope, grid.stride, grid.dilation, strict=True)
    furthest = [(max(m - 1, s * (n - 1)), d * (r // 2)) for m, n, r, s, d in axes]
    return tuple(fast_length(extent + min(reach, extent) + 1) for extent, reach in furthest)


def fast_length(n: int) -> int:
    """The next number with no prime factor above 5.

    >>> [fast_length(n) for n in (1, 7, 13, 121)]
    [1, 8, 15, 125]
    """
    while True:
        rest = n
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return n
        n += 1


def wrapped(kernels: Float[Tensor, "k u *r"], grid: Grid, size: tuple[int, ...]) -> Float[Tensor, "k u *l"]:
    """Windows on maps of `size`, dilated, with offset zero at the origin and negative ones at the end."""
    for axis, (r, d, length) in enumerate(zip(grid.scope, grid.dilation, size, strict=True), start=2):
        shape = (*kernels.shape[:axis], length, *kernels.shape[axis + 1 :])
        kernels = kernels.new_zeros(shape).index_copy(axis, wrapped_offsets(r, d, length, kernels.device), kernels)
    return kernels


def unwrapped(maps: Float[Tensor, "u *l"], grid: Grid, size: tuple[int, ...]) -> Float[Tensor, "u *r"]:
    """The windows of such maps."""
    for axis, (r, d, length) in enumerate(zip(grid.scope, grid.dilation, size, strict=True), start=1):
        maps = maps.index_select(axis, wrapped_offsets(r, d, length, maps.device))
    return maps


def wrapped_offsets(r: int, dilation: int, length: int, device: torch.device) -> Int[Tensor, "r"]:
    return (dilation * (torch.arange(r, device=device) - r // 2)) % length


def apart(maps: Float[Tensor, "b v *n"], grid: Grid) -> Float[Tensor, "b v *l"]:
    """Maps of queries where these stand among the context positions, zeros in between."""
    if max(grid.stride) == 1:
        return maps
    placed = maps.new_zeros(*maps.shape[:2], *(s * (n - 1) + 1 for s, n in zip(grid.stride, grid.queries, strict=True)))
    at: tuple[Any, ...] = (..., *(slice(None, None, s) for s in grid.stride))
    placed[at] = maps
    return placed
