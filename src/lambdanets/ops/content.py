"""The content term, and lambdas applied to queries (Eq. 1, 2 and 5).

    lc[b, k, v]   = sum_{m,u} Kbar[b,m,k,u] V[b,m,v,u]
    Y[b, n, h, v] = sum_k Q[b,n,h,k] lc[b,k,v]

Kbar are the keys normalised over the context positions that may be used. Without a mask, or with one that is the same
for all queries, there is one content lambda; otherwise each query has its own.
"""

from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lambdanets.ops.causal import causal_content
from lambdanets.ops.geometry import Causal
from lambdanets.ops.keys import KeyNorm, normalise_keys
from lambdanets.ops.masks import drop_unusable, read_mask
from lambdanets.ops.pairs import contract, over_queries, recomputed
from lambdanets.ops.precision import in_full_precision


def content_lambda(keys: Float[Tensor, "b m k u"], values: Float[Tensor, "b m v u"]) -> Float[Tensor, "b k v"]:
    """Eq. 1: the lambda that all positions share, from keys that are already normalised."""
    return torch.einsum("bmku,bmvu->bkv", keys, values)


def apply_lambda(
    q: Float[Tensor, "b n h k"], lambdas: Float[Tensor, "b k v"] | Float[Tensor, "b n k v"]
) -> Float[Tensor, "b n h v"]:
    """Eq. 2 and 4: every query of a position meets the same lambda."""
    return torch.einsum("bnhk,bkv->bnhv" if lambdas.ndim == 3 else "bnhk,bnkv->bnhv", q, lambdas)


@in_full_precision
def content_term(
    q: Float[Tensor, "b n h k"],
    keys: Float[Tensor, "b m k u"],
    values: Float[Tensor, "b m v u"],
    *,
    key_norm: KeyNorm = "softmax",
    mask: Bool[Tensor, "..."] | None = None,
    causal: Causal = False,
) -> Float[Tensor, "b n h v"]:
    """The content part of the output, from keys that are not yet normalised.

    Args:
        mask: which context a query may use, True = may use, broadcastable to (b, n, m).
        causal: a query uses the context up to its own index, or before it if "strict"; needs n == m.

    >>> q, keys, values = torch.randn(2, 5, 4, 16), torch.randn(2, 7, 16, 1), torch.randn(2, 7, 3, 1)
    >>> content_term(q, keys, values).shape
    torch.Size([2, 5, 4, 3])
    """
    b, n, m = q.shape[0], q.shape[1], keys.shape[1]
    allowed = read_mask(mask, b, n, m)
    if causal and n != m:
        raise ValueError(f"a causal content term needs as many queries as context positions, got n={n}, m={m}")
    if causal and allowed.pairs is not None:
        order = torch.arange(n, device=q.device)
        ahead = order[:, None] - order[None, :]
        allowed = allowed.both(ahead > 0 if causal == "strict" else ahead >= 0)
        causal = False
    usable = allowed.usable()
    keys, values = drop_unusable(keys, usable), drop_unusable(values, usable)
    if causal:
        sums = partial(causal_content, key_norm=key_norm, rows=allowed.rows, strict=causal == "strict")
        return recomputed(sums, q, keys, values)
    if allowed.pairs is None:
        return apply_lambda(q, content_lambda(normalise_keys(keys, key_norm, allowed.rows), values))

    pairs = allowed.pairs

    def some_queries(part: slice) -> Float[Tensor, "b c h v"]:
        return contract(q[:, part], normalise_keys(keys[:, None], key_norm, pairs[:, part]), values)

    return over_queries(some_queries, n, per_query=keys.numel())
