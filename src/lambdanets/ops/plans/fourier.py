"""The position lambdas of a grid by Fourier transforms: O(n log n), whatever the scope.

On a grid, lp[x] = sum_o R[o] V[x + o] is a correlation, so its transform is that of V times the conjugate of R's. Maps
are padded until no window wraps around. One k at a time, each computed again in the backward pass: the lambdas of all
k at once would be k times the activations.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from lambdanets.ops.geometry import Geometry, Grid, reachable
from lambdanets.ops.masks import Allowed
from lambdanets.ops.pairs import recomputed
from lambdanets.ops.plans.problem import Cost, Problem


class Fourier:
    """Transforms of V and R, a product, and one transform back for each k."""

    name = "fft"

    def supports(self, problem: Problem) -> str | None:
        if isinstance(problem.geometry, Grid) and problem.geometry.causal:
            return "rounding in the transforms would let a trace of the future through"
        return problem.no_windows

    def cost(self, problem: Problem) -> Cost:
        p = problem
        assert isinstance(p.geometry, Grid)
        points = math.prod(lengths(p.geometry))
        transforms = (p.b * p.v * (p.u + p.k) + p.k * p.u) * points * 2.5 * math.log2(points + 1)
        products = p.b * p.v * p.k * (2 * p.u * points + p.n * p.h)
        # Backward, everything is computed once more and then twice. The operations are many and small: starting those
        # of one k takes as long as moving a megabyte, or nine with their gradients.
        return Cost((4 if p.trains else 1) * (5 * transforms + 3 * products), p.k * (9e6 if p.trains else 1.3e6))

    def run(
        self,
        q: Float[Tensor, "b n h k"],
        values: Float[Tensor, "b m v u"],
        table: Float[Tensor, "p k u"],
        geometry: Geometry,
        allowed: Allowed,
    ) -> Float[Tensor, "b n h v"]:
        assert isinstance(geometry, Grid)
        grid, table = reachable(geometry, table)
        size, axes = lengths(grid), tuple(range(-len(grid.scope), 0))
        b, _, v, u = values.shape
        maps = values.permute(0, 2, 3, 1).reshape(b, v, u, *grid.context)
        spectrum = torch.fft.rfftn(maps, size, dim=axes)

        def one_k(q_k: Float[Tensor, "b n h"], kernel: Float[Tensor, "u *r"]) -> Float[Tensor, "b n h v"]:
            response = torch.fft.rfftn(wrapped(kernel, grid, size), dim=axes).conj()
            lambdas = torch.fft.irfftn((spectrum * response).sum(2), size, dim=axes)
            at_queries = lambdas[(..., *(slice(0, s * n, s) for s, n in zip(grid.stride, grid.queries, strict=True)))]
            y: Tensor = q_k[..., None] * at_queries.flatten(2).transpose(1, 2)[:, :, None]
            return y

        y = q.new_zeros(*q.shape[:3], v)
        kernels = table.permute(1, 2, 0).reshape(*table.shape[1:], *grid.scope)
        for q_k, kernel in zip(q.unbind(-1), kernels, strict=True):
            y = y + recomputed(one_k, q_k, kernel)
        return y


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


def wrapped(kernel: Float[Tensor, "u *r"], grid: Grid, size: tuple[int, ...]) -> Float[Tensor, "u *l"]:
    """The window on maps of `size`, dilated, with offset zero at the origin and negative ones at the end."""
    for axis, (r, d, length) in enumerate(zip(grid.scope, grid.dilation, size, strict=True), start=1):
        offsets = (d * (torch.arange(r, device=kernel.device) - r // 2)) % length
        shape = (*kernel.shape[:axis], length, *kernel.shape[axis + 1 :])
        kernel = kernel.new_zeros(shape).index_copy(axis, offsets, kernel)
    return kernel
