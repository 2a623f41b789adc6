"""In C, by one of two algorithms; autograd keeps the inputs and nothing more, all else is computed again backward.

Direct: the scores of a window, then their sum over the values, query by query; no lambda ever exists. Or, for large
windows, lambdas first through Fourier transforms, two k and a vector of channels at a time. `native` chooses: the
faster one, unless the dynamic range of an example is too large for transforms, which round relative to the whole map.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lambdanets.kernels import operators
from lambdanets.kernels.library import AUTO, DIRECT, FFT, position_cost
from lambdanets.ops.geometry import Causal, Grid, past_rows, reachable, reachable_scope
from lambdanets.ops.pairs import recomputed
from lambdanets.ops.plans.convolution import convolved_term
from lambdanets.ops.plans.plan import Plan
from lambdanets.ops.plans.problem import Cost, Inputs, Problem


class Native(Plan):
    """Direct: h (k + v) multiplies for each pair in scope, backward h (3 k + 2 v), nearly at a product's rate.

    Through Fourier transforms: 50 operations or so for each two k, channel and position of a padded map, backward 100.
    """

    devices = frozenset({"cpu"})
    takes_content = takes_layer = True
    is_portable = False

    def __init__(self, name: str, algorithm: int) -> None:
        self.name, self.algorithm = name, algorithm

    def automatic(self, problem: Problem) -> bool:
        return self.algorithm == AUTO

    def supports(self, problem: Problem) -> str | None:
        reason = super().supports(problem) or problem.no_windows
        if reason is not None:
            return reason
        grid = problem.geometry
        assert isinstance(grid, Grid)
        if len(grid.scope) > 2:
            return "the kernels are for maps of one or two axes"
        if self.algorithm == FFT and (grid.causal or {*grid.stride, *grid.dilation} != {1}):
            return "the kernels' transforms need stride 1, dilation 1 and no causality"
        return problem.no_kernels

    def cost(self, problem: Problem) -> Cost:
        p = problem
        packed = p.b * (p.n * p.h * (p.k + p.v) + p.m * p.v * p.u)
        return Cost(self._multiplies(p), 2 * p.passes * packed, operations=25 if p.trains else 5)

    def _multiplies(self, p: Problem) -> float:
        """Multiply-adds, as the kernels themselves count them."""
        assert isinstance(p.geometry, Grid)
        assert p.dtype is not None
        if torch.compiler.is_compiling():  # which cannot look into C: at most those of the direct algorithm
            return p.b * p.pairs_in_scope * p.u * p.h * (4 * p.k + 3 * p.v if p.trains else p.k + p.v)
        window = self.window(replace(p.geometry, scope=reachable_scope(p.geometry)))
        total = 0.0
        for backward in (False, True) if p.trains else (False,):
            direct, fft = position_cost(p.b, p.h, p.k, p.v, p.u, window, p.dtype, backward=backward)
            total += {AUTO: min(direct, fft), DIRECT: direct, FFT: fft}[self.algorithm]
        return p.b * total

    def run(self, inputs: Inputs) -> Float[Tensor, "b n h v"]:
        assert isinstance(inputs.geometry, Grid)
        table, window = window_of(inputs.geometry, inputs.table, self.algorithm)
        y: Tensor = operators.position_term(inputs.q, inputs.values, table, inputs.content, *window)
        return y

    def window(self, grid: Grid) -> list[Any]:
        past = past_rows(grid) if grid.causal else grid.rows
        axes = (grid.queries, grid.context, grid.scope, grid.stride, grid.dilation)
        return [*([1] * (2 - len(axis)) + [*axis] for axis in axes), past, self.algorithm]


NATIVE = (Native("native", AUTO), Native("native_direct", DIRECT), Native("native_fft", FFT))


def window_of(
    grid: Grid, table: Float[Tensor, "p k u"], algorithm: int = AUTO
) -> tuple[Float[Tensor, "q k u"], list[Any]]:
    """The table and the grid as the kernels take them: what of the window is on the map, on two axes."""
    grid, table = reachable(grid, table)
    return table, NATIVE[algorithm].window(grid)


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
