"""Gather and distribute: the context as a few descriptors, and every position a mixture of them.

    G_k = sum_m softmax_m(keys)[m, k] v_m        gather: k means over the positions
    Y_n = sum_k softmax_k(q_n)[k] G_k            distribute

Double attention (A^2-Nets) does this once, efficient attention (Shen et al.) in every head. Time and memory grow with
n + m, not with n m: G is a content lambda, applied to queries that are distributions.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lambdanets.ops.keys import normalise_keys
from lambdanets.ops.masks import drop_unusable
from lambdanets.ops.precision import in_full_precision


@in_full_precision
def gather_and_distribute(
    q: Float[Tensor, "b n h k"],
    keys: Float[Tensor, "b m h k"],
    values: Float[Tensor, "b m h v"],
    rows: Bool[Tensor, "#b m"] | None = None,
) -> Float[Tensor, "b n h v"]:
    """Keys are softened over the positions, queries over their channels; if no row may be used, all is zero.

    Args:
        rows: the context positions that all queries may use, True = may use.
    """
    maps = normalise_keys(drop_unusable(keys, rows), "softmax", rows)
    gathered = torch.einsum("bmhk,bmhv->bhkv", maps, drop_unusable(values, rows))
    return torch.einsum("bnhk,bhkv->bnhv", q.softmax(-1), gathered)
