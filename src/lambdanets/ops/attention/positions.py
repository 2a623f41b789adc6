"""What tells attention, which knows no order, where positions are.

    sinusoidal   codes of sines and cosines, added to the input; they exist for every length
    relative     scores q_n . r_(m - n), added to q_n . k_m: softargmax((K + E_n) q_n)
                 and, if values have embeddings too (Shaw et al.), sum_m a_nm r'_(m - n) added to sum_m a_nm v_m

On maps the relative embeddings are sums of one for each axis, r_(m - n) = sum over axes of r_axis. Shaw et al. clip
distances: beyond k = p // 2 all offsets have the embedding of the outermost row of a table of p, r_clip(m - n, k).
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def sinusoidal_codes(
    n: int, d: int, *, base: float = 10_000.0, dtype: torch.dtype = torch.float32, device: torch.device | None = None
) -> Float[Tensor, "n d"]:
    """Sines in even channels and cosines in odd ones, of wavelengths from 2 pi to 2 pi base.

    >>> sinusoidal_codes(3, 4)[0]
    tensor([0., 1., 0., 1.])
    """
    rates = torch.exp(torch.arange(0, d, 2, device=device, dtype=torch.float64) * (-math.log(base) / d))
    angles = torch.arange(n, device=device, dtype=torch.float64)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :d].to(dtype)


def relative_embeddings(table: Float[Tensor, "p k"], n: int, m: int, *, clip: bool = False) -> Float[Tensor, "n m k"]:
    """E[n, m] = R[m - n + p // 2] along one axis, the middle row is offset zero.

    Every offset must have a row unless `clip` gives those beyond the table its outermost rows.

    >>> relative_embeddings(torch.tensor([[-1.0], [0.0], [1.0]]), 3, 4, clip=True)[..., 0]
    tensor([[ 0.,  1.,  1.,  1.],
            [-1.,  0.,  1.,  1.],
            [-1., -1.,  0.,  1.]])
    """
    rows, middle = table.shape[0], table.shape[0] // 2
    if not clip and max(n, m) - 1 > middle:
        raise ValueError(f"a table of {rows} rows has no embedding for offsets up to {max(n, m) - 1}; clip=True has")
    context, queries = torch.arange(m, device=table.device), torch.arange(n, device=table.device)
    row = context - queries[:, None] + middle
    return table[row.clamp(0, rows - 1) if clip else row]


def relative_scores(
    q: Float[Tensor, "b n h k"],
    tables: Sequence[Float[Tensor, "_ k"]],
    queries: Sequence[int],
    context: Sequence[int],
    *,
    clip: bool = False,
) -> Float[Tensor, "b h n m"]:
    """q_n . r_(m - n) for all pairs of two grids, `tables` has one table for each axis."""
    b, _, h, _ = q.shape
    axes = len(tables)
    on_grid = q.transpose(1, 2).unflatten(2, tuple(queries))  # b h *queries k
    scores = q.new_zeros(())
    for axis, (table, n, m) in enumerate(zip(tables, queries, context, strict=True)):
        along = on_grid.movedim(2 + axis, -2)  # b h *others n k
        of_axis = torch.einsum("...nk,nmk->...nm", along, relative_embeddings(table, n, m, clip=clip))
        of_axis = of_axis.movedim(-2, 2 + axis)  # b h *queries m
        scores = scores + of_axis.unflatten(-1, [m if other == axis else 1 for other in range(axes)])
    return scores.reshape(b, h, math.prod(queries), math.prod(context))


def relative_values(
    map_: Float[Tensor, "b h n m"],
    tables: Sequence[Float[Tensor, "_ v"]],
    queries: Sequence[int],
    context: Sequence[int],
    *,
    clip: bool = False,
) -> Float[Tensor, "b n h v"]:
    """sum_m a_nm r'_(m - n) on two grids: what embeddings of values add to `weighted`."""
    axes = len(tables)
    on_grids = map_.unflatten(3, tuple(context)).unflatten(2, tuple(queries))  # b h *queries *context
    y = map_.new_zeros(())
    for axis, (table, n, m) in enumerate(zip(tables, queries, context, strict=True)):
        others = [2 + axes + other for other in range(axes) if other != axis]
        along = (on_grids.sum(others) if others else on_grids).movedim(2 + axis, -2)  # b h *others n m
        of_axis = torch.einsum("...nm,nmv->...nv", along, relative_embeddings(table, n, m, clip=clip))
        y = y + of_axis.movedim(-2, 2 + axis)  # b h *queries v
    return y.flatten(2, -2).transpose(1, 2)
