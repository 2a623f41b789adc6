"""Attention: every query takes the mean of the values, weighed by how well its keys fit.

    Y_n = sum_m softargmax_m(beta q_n . k_m + bias_nm) v_m

`weighted` is for scores of any kind. `attend` is for scaled dot products and never forms the map where torch's
`scaled_dot_product_attention` need not; it differs from that function in two ways: a query that may use nothing gets
zeros, and what stands at positions that no query may use, NaN included, reaches nothing.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float
from torch import Tensor

from lambdanets.ops.masks import drop_unusable


def weighted(map_: Float[Tensor, "b h n m"], values: Float[Tensor, "b m h v"]) -> Float[Tensor, "b n h v"]:
    """h = X a for every query: the columns of a map of attention say how much of each value."""
    return torch.einsum("bhnm,bmhv->bnhv", map_, values)


def attend(
    q: Float[Tensor, "b n h k"],
    keys: Float[Tensor, "b m g k"],
    values: Float[Tensor, "b m g v"],
    *,
    bias: Float[Tensor, "#b #h n m"] | None = None,
    mask: Bool[Tensor, "#b #n m"] | None = None,
    causal: bool = False,
    beta: float | None = None,
) -> Float[Tensor, "b n h v"]:
    """Soft attention with dot products as scores.

    Args:
        keys, values: of g heads, each of which serves h / g heads of queries; one of them is multiquery attention.
        bias: added to the scores, after `beta`.
        mask: which context positions a query may use, True = may use.
        causal: query n may use the positions up to n.
        beta: the inverse temperature, k^-1/2 by default.
    """
    n, m, h = q.shape[1], keys.shape[1], q.shape[2]
    if h % keys.shape[2]:
        raise ValueError(f"heads of keys must divide those of queries, got {keys.shape[2]} and h={h}")
    is_grouped = bool(keys.shape[2] != h)  # while TorchScript traces, sizes are tensors
    if causal and (mask is not None or bias is not None or n != m):
        earlier = torch.ones(n, m, dtype=torch.bool, device=q.device).tril()[None]
        mask, causal = earlier if mask is None else mask & earlier, False
    empty, allowed = None, bias
    if mask is not None:
        usable = mask.any(1)
        keys, values = drop_unusable(keys, usable), drop_unusable(values, usable)
        empty = ~mask.any(-1)[:, :, None, None]
        seen = (mask | empty[..., 0])[:, None]  # what is not there may be seen: the answer is replaced below
        allowed = seen if bias is None else bias.masked_fill(~seen, -torch.inf)
    y = F.scaled_dot_product_attention(
        q.transpose(1, 2),
        keys.transpose(1, 2),
        values.transpose(1, 2),
        attn_mask=None if allowed is None else allowed.to(q.dtype) if allowed.is_floating_point() else allowed,
        is_causal=causal,
        scale=beta,
        enable_gqa=is_grouped,
    ).transpose(1, 2)
    return y if empty is None else y.masked_fill(empty, 0.0)
