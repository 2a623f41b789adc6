"""The lambda convolution (Eq. 3): position lambdas as a convolution of V with R, the value depth in the batch."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor

from lambdanets.compat import is_exporting
from lambdanets.ops.geometry import Grid, past_rows, reachable, reachable_scope
from lambdanets.ops.pairs import recomputed
from lambdanets.ops.plans.plan import Plan
from lambdanets.ops.plans.problem import Cost, Inputs, Problem

# Beyond this window torch's convolutions of 2 and 3 axes on CPUs fall back to a path ten times slower.
WIDEST = 57
# Multiply-adds of a matrix product that take as long as one of a convolution, without and with its gradients. On CPUs,
# measured: on lines a convolution runs at a quarter of a product's rate, and the gradients of one with so large a
# window take many times as long as itself. On accelerators, guessed: its gradients are two more convolutions.
CPU_LINES, CPU_MAPS, ACCELERATOR = (4.0, 25.0), (0.65, 15.0), (1.5, 4.5)
CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


class Convolution(Plan):
    """k v multiplies for each pair in scope, in torch's convolution; the lambdas of all queries exist at once."""

    name = "convolution"
    serves_all_sizes = True

    def supports(self, problem: Problem) -> str | None:
        return super().supports(problem) or problem.no_windows

    def cost(self, problem: Problem) -> Cost:
        p = problem
        assert isinstance(p.geometry, Grid)
        # The k are the channels that a convolution makes, and with less than a vector of them it is no faster.
        products = p.b * p.pairs_in_scope * p.u * max(p.k, 16) * p.v
        lambdas = p.passes * p.b * p.n * p.k * p.v
        weight = weight_of(reachable_scope(p.geometry), p.device)[p.trains]
        return Cost(weight * products + lambdas * p.h, 6 * lambdas, operations=100 if p.trains else 20)

    def run(self, inputs: Inputs) -> Float[Tensor, "b n h v"]:
        assert isinstance(inputs.geometry, Grid)
        tensors = (inputs.q, inputs.values, inputs.table)
        if torch.compiler.is_exporting():
            return convolved_term(*tensors, inputs.geometry)
        return recomputed(convolved_term, *tensors, inputs.geometry)  # the lambdas are k times the output


def weight_of(scope: tuple[int, ...], device: torch.device) -> tuple[float, float]:
    """What a multiply-add of such a convolution is worth, without and with gradients."""
    if device.type != "cpu":
        return ACCELERATOR
    if len(scope) == 1:
        return CPU_LINES
    slow = 10 if max(scope) > WIDEST else 1
    return slow * CPU_MAPS[0], slow * CPU_MAPS[1]


def convolved_term(
    q: Float[Tensor, "b n h k"], values: Float[Tensor, "b m v u"], table: Float[Tensor, "p k u"], grid: Grid
) -> Float[Tensor, "b n h v"]:
    """The lambdas of all queries, applied."""
    return torch.einsum("bnhk,bvkn->bnhv", q, convolved_lambdas(values, table, grid))


def convolved_lambdas(
    values: Float[Tensor, "b m v u"], table: Float[Tensor, "p k u"], grid: Grid
) -> Float[Tensor, "b v k n"]:
    """lp[b,v,k,n] = sum over the window, and u, of R[p,k,u] V[b,m,v,u]; zero padding is E = 0 outside the map."""
    b, _m, v, u = values.shape
    if not torch.compiler.is_exporting():  # an exported window cannot depend on the size of the map
        grid, table = reachable(grid, table)
    if grid.causal:
        later = torch.arange(grid.rows, device=table.device) >= past_rows(grid)
        table = table.masked_fill(later[:, None, None], 0.0)
    # Contiguous first: with a view that happens to look channels-last, torch's float64 backward refuses its gradient.
    maps = values.permute(0, 2, 3, 1).contiguous().reshape(b * v, u, *grid.context)
    kernel = table.permute(1, 2, 0).contiguous().reshape(table.shape[1], u, *grid.scope)
    convolve = CONVOLUTIONS[len(grid.scope)]
    margins = padding(grid)
    if can_pad_itself(grid, margins, trains=torch.is_grad_enabled() and table.requires_grad):
        inside = tuple(before for before, _ in margins)
        lambdas = convolve(maps, kernel, stride=grid.stride, dilation=grid.dilation, padding=inside)
    else:
        flat = [margin for axis in reversed(margins) for margin in axis]
        lambdas = convolve(F.pad(maps, flat), kernel, stride=grid.stride, dilation=grid.dilation)
    return lambdas.reshape(b, v, table.shape[1], grid.n)


def can_pad_itself(grid: Grid, margins: Sequence[tuple[int, int]], *, trains: bool) -> bool:
    """Whether torch's convolution can pad the map, which saves a copy and all products with zeros.

    The padding must be the same on both sides.
    """
    if is_exporting() or any(before != after for before, after in margins):
        return False
    return not trains or can_pad_in_training(grid.scope, grid.dilation, grid.context)


def can_pad_in_training(scope: Sequence[int], dilation: Sequence[int], size: Sequence[int]) -> bool:
    """Whether no window is larger than the map.

    Otherwise oneDNN's gradient of the weights for AVX-512 writes beyond its memory when the convolution pads the map
    itself (torch 2.13, one channel in and 16 out, kernel 21 x 13 on a map of 11 x 7).
    """
    return all(d * (r - 1) < m for r, d, m in zip(scope, dilation, size, strict=True))


def padding(grid: Grid) -> list[tuple[int, int]]:
    """Per axis, how many zeros before and after the map make exactly the queries' windows fit; negative ones cut."""
    margins = []
    axes = zip(grid.context, grid.queries, grid.scope, grid.stride, grid.dilation, strict=True)
    for m, n, r, s, d in axes:
        before = d * (r - 1) // 2
        margins.append((before, s * (n - 1) + before - (m - 1)))
    return margins
