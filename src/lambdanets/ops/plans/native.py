"""In C, by one of two algorithms; autograd keeps the inputs and nothing more, all else is computed again backward.

Direct: the scores of a window, then their sum over the values, query by query; no lambda ever exists. Or, for large
windows, lambdas first through Fourier transforms, two k and a vector of channels at a time. `native` chooses: the
faster one, unless the dynamic range of an example is too large for transforms, which round relative to the whole map.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lambdanets.compat import is_transformed
from lambdanets.kernels import operators, unavailable
from lambdanets.kernels.library import AUTO, DIRECT, FFT
from lambdanets.ops.geometry import Causal, Geometry, Grid, past_rows, reachable
from lambdanets.ops.masks import Allowed
from lambdanets.ops.pairs import recomputed
from lambdanets.ops.plans.convolution import convolved_term
from lambdanets.ops.plans.problem import Cost, Problem


class Native:
    """Direct: h (k + v) multiplies for each pair in scope, backward h (3 k + 2 v), nearly at a product's rate.

    Through Fourier transforms: 50 operations or so for each two k, channel and position of a padded map, backward 100.
    """

    def __init__(self, name: str, algorithm: int) -> None:
        self.name, self.algorithm = name, algorithm

    def automatic(self, problem: Problem) -> bool:
        return self.algorithm == AUTO

    def supports(self, problem: Problem) -> str | None:
        if problem.device.type != "cpu":
            return f"the kernels are for CPUs, and this is on {problem.device}"
        if problem.dtype not in (torch.float32, torch.float64):
            return f"the kernels are for float32 and float64, and this is {problem.dtype or 'more than one dtype'}"
        if problem.no_windows is not None:
            return problem.no_windows
        assert isinstance(problem.geometry, Grid)
        if len(problem.geometry.scope) > 2:
            return "the kernels are for maps of one or two axes"
        if is_transformed():
            return "the kernels have no rules for the transforms of torch.func"
        reason = unavailable()
        if reason is not None:
            return f"there are no kernels: {reason}"
        if self.algorithm == FFT and math.isinf(self.fft(problem)):
            return "the kernels' transforms need stride 1, dilation 1 and no causality"
        return None

    def cost(self, problem: Problem) -> Cost:
        p = problem
        packed = p.b * (p.n * p.h * (p.k + p.v) + p.m * p.v * p.u)
        fixed = 1e6 if p.trains else 2e5
        multiplies = min(f(p) for f, forced in ((self.direct, FFT), (self.fft, DIRECT)) if self.algorithm != forced)
        return Cost(multiplies, 2 * p.passes * packed + fixed)

    def direct(self, p: Problem) -> float:
        """Multiply-adds."""
        causal = isinstance(p.geometry, Grid) and p.geometry.causal
        pairs = p.b * p.pairs_in_scope * p.u / (2 if causal else 1)
        # Less than a vector of values, and a single head, leave part of the machine idle.
        h, v = max(p.h, 2), max(p.v, 8)
        return pairs * h * (0.75 * (p.k + v) + (3 * p.k + 2 * v if p.trains else 0))

    def fft(self, p: Problem) -> float:
        """Operations, each taken for a multiply-add; infinitely many where there are no transforms. As in fft.c."""
        g = p.geometry
        if not isinstance(g, Grid) or g.causal or {*g.stride, *g.dilation} != {1}:
            return math.inf
        axes = zip(g.context, g.queries, g.scope, strict=True)
        points = math.prod([max(m, n) + min(r // 2, m - 1) for m, n, r in axes])
        forward = p.k / 2 * ((50 + 4 * p.u) * points + 4 * p.n * p.h) + 50 * p.u * points
        backward = p.k / 2 * ((100 + 18 * p.u) * points + 14 * p.n * p.h) + 100 * p.u * points if p.trains else 0
        return p.b * max(p.v, 8) * (forward + backward)

    def run(
        self,
        q: Float[Tensor, "b n h k"],
        values: Float[Tensor, "b m v u"],
        table: Float[Tensor, "p k u"],
        geometry: Geometry,
        allowed: Allowed,
    ) -> Float[Tensor, "b n h v"]:
        return native_terms(q, values, table, None, geometry, self.algorithm)


def native_terms(
    q: Float[Tensor, "b n h k"],
    values: Float[Tensor, "b m v u"],
    table: Float[Tensor, "p k u"],
    content: Float[Tensor, "b k v"] | None,
    geometry: Geometry,
    algorithm: int = AUTO,
) -> Float[Tensor, "b n h v"]:
    """The position term, and in the same pass the content term of given content lambdas."""
    assert isinstance(geometry, Grid)
    table, window = window_of(geometry, table, algorithm)
    y: Tensor = operators.position_term(q, values, table, content, *window)
    return y


def window_of(
    grid: Grid, table: Float[Tensor, "p k u"], algorithm: int = AUTO
) -> tuple[Float[Tensor, "q k u"], list[Any]]:
    """The table and the grid as the kernels take them: what of the window is on the map, on two axes."""
    grid, table = reachable(grid, table)
    past = past_rows(grid) if grid.causal else grid.rows
    axes = (grid.queries, grid.context, grid.scope, grid.stride, grid.dilation)
    return table, [*([1] * (2 - len(axis)) + [*axis] for axis in axes), past, algorithm]


def grid_of(window: Sequence[Any]) -> Grid:
    """The grid that a window of the kernels is."""
    queries, context, scope, stride, dilation = map(tuple, window[:5])
    rows, past = math.prod(scope), window[5]
    causal: Causal = False if past == rows else True if past == rows // 2 + 1 else "strict"
    return Grid(context, queries, scope, stride, dilation, causal)


def composed_term(
    q: Float[Tensor, "b n h k"],
    values: Float[Tensor, "b m v u"],
    table: Float[Tensor, "p k u"],
    content: Float[Tensor, "b k v"] | None,
    *window: Any,
) -> Float[Tensor, "b n h v"]:
    """What the kernels compute, in operations that torch can differentiate twice."""
    y = recomputed(convolved_term, q, values, table, grid_of(window))
    return y if content is None else y + torch.einsum("bnhk,bkv->bnhv", q, content)


operators.COMPOSITIONS["position"] = composed_term
NATIVE = (Native("native", AUTO), Native("native_direct", DIRECT), Native("native_fft", FFT))


def may_be_native(plan: str | None) -> bool:
    """Whether a forced plan, or the automatic choice, may use the kernels."""
    return plan is None or plan in {native.name for native in NATIVE}
