"""The lambda convolution (Eq. 3): position lambdas as a convolution of V with R, the value depth in the batch."""

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor

from lambdanets.ops.geometry import Grid, past_rows, reachable

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def convolution(
    q: Float[Tensor, "b n h k"], values: Float[Tensor, "b m v u"], table: Float[Tensor, "p k u"], grid: Grid
) -> Float[Tensor, "b n h v"]:
    """The position term on a grid, without a mask that differs between queries."""
    lambdas = convolved_lambdas(values, table, grid)
    return torch.einsum("bnhk,bvkn->bnhv", q, lambdas)


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
    maps = values.permute(0, 2, 3, 1).reshape(b * v, u, *grid.context)
    kernel = table.permute(1, 2, 0).reshape(table.shape[1], u, *grid.scope)
    convolve = CONVOLUTIONS[len(grid.scope)]
    margins = padding(grid)
    if not torch.compiler.is_exporting() and all(before == after for before, after in margins):
        inside = tuple(before for before, _ in margins)
        lambdas = convolve(maps, kernel, stride=grid.stride, dilation=grid.dilation, padding=inside)
    else:  # a copy, but windows that hang over the edges unevenly have no other way
        flat = [margin for axis in reversed(margins) for margin in axis]
        lambdas = convolve(F.pad(maps, flat), kernel, stride=grid.stride, dilation=grid.dilation)
    return lambdas.reshape(b, v, table.shape[1], grid.n)


def padding(grid: Grid) -> list[tuple[int, int]]:
    """Per axis, how many zeros before and after the map make exactly the queries' windows fit; negative ones cut."""
    margins = []
    axes = zip(grid.context, grid.queries, grid.scope, grid.stride, grid.dilation, strict=True)
    for m, n, r, s, d in axes:
        before = d * (r - 1) // 2
        margins.append((before, s * (n - 1) + before - (m - 1)))
    return margins
