"""What tells attention, which knows no order, where positions are.

    sinusoidal   codes of sines and cosines, added to the input; they exist for every length
    relative     scores q_n . r_(m - n), added to q_n . k_m: softargmax((K + E_n) q_n)

On maps the relative embeddings are sums of one for each axis, r_(m - n) = sum over axes of r_axis.
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


def relative_embeddings(table: Float[Tensor, "p k"], n: int, m: int) -> Float[Tensor, "n m k"]:
    """E[n, m] = R[m - n + p // 2] along one axis; every offset must have a row, the middle one is offset zero."""
    if max(n, m) - 1 > table.shape[0] // 2:
        raise ValueError(f"a table of {table.shape[0]} rows has no embedding for offsets up to {max(n, m) - 1}")
    context, queries = torch.arange(m, device=table.device), torch.arange(n, device=table.device)
    return table[context - queries[:, None] + table.shape[0] // 2]


def relative_scores(
    q: Float[Tensor, "b n h k"],
    tables: Sequence[Float[Tensor, "_ k"]],
    queries: Sequence[int],
    context: Sequence[int],
) -> Float[Tensor, "b h n m"]:
    """q_n . r_(m - n) for all pairs of two grids, `tables` has one table for each axis."""
    b, _, h, _ = q.shape
    axes = len(tables)
    on_grid = q.transpose(1, 2).unflatten(2, tuple(queries))  # b h *queries k
    scores = q.new_zeros(())
    for axis, (table, n, m) in enumerate(zip(tables, queries, context, strict=True)):
        along = on_grid.movedim(2 + axis, -2)  # b h *others n k
        of_axis = torch.einsum("...nk,nmk->...nm", along, relative_embeddings(table, n, m))
        of_axis = of_axis.movedim(-2, 2 + axis)  # b h *queries m
        scores = scores + of_axis.unflatten(-1, [m if other == axis else 1 for other in range(axes)])
    return scores.reshape(b, h, math.prod(queries), math.prod(context))
