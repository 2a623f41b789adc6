"""Every (query, context) pair, query first: Y = (q . E) V, some queries at a time.

Serves what no structure can: masks that differ between queries, general relations, given embeddings. E exists for a
slice of the queries only, and is computed again in the backward pass, so memory grows with m, not with n m.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lambdanets.ops.masks import Allowed
from lambdanets.ops.positions import Geometry, embeddings

# Elements of the largest tensor that exists at one time, 64 MB in float32: large enough to keep the matrix products
# busy, small beside the activations of a network.
LARGEST = 2**24


def contract(
    q: Float[Tensor, "b n h k"],
    embedded: Float[Tensor, "#b n m k u"],
    values: Float[Tensor, "b m v u"],
    pairs: Bool[Tensor, "#b n m"] | None = None,
) -> Float[Tensor, "b n h v"]:
    """Y[b,n,h,v] = sum over m, u of (sum_k Q[b,n,h,k] E[n,m,k,u]) P[n,m] V[b,m,v,u]."""
    if embedded.shape[0] == 1:
        scores = torch.einsum("bnhk,nmku->bnhmu", q, embedded[0])
    else:
        scores = torch.einsum("bnhk,bnmku->bnhmu", q, embedded)
    if pairs is not None:
        scores = scores.masked_fill(~pairs[:, :, None, :, None], 0.0)
    return torch.einsum("bnhmu,bmvu->bnhv", scores, values)


def over_queries(
    some_queries: Callable[[slice], Float[Tensor, "b c h v"]], n: int, per_query: int
) -> Float[Tensor, "b n h v"]:
    """Evaluate slices of the queries one after the other, keeping none of their intermediates for the backward pass.

    `per_query` is the size of the largest intermediate of one query. A traced graph gets one slice: how many there
    are would depend on a size that may be symbolic.
    """
    at_once = max(1, LARGEST // max(per_query, 1))
    if torch.compiler.is_compiling() or n <= at_once:
        return some_queries(slice(0, n))
    parts = [slice(start, min(start + at_once, n)) for start in range(0, n, at_once)]
    return torch.cat([checkpoint(some_queries, part, use_reentrant=False) for part in parts], dim=1)


def dense(
    q: Float[Tensor, "b n h k"],
    values: Float[Tensor, "b m v u"],
    table: Float[Tensor, "p k u"],
    geometry: Geometry,
    allowed: Allowed,
) -> Float[Tensor, "b n h v"]:
    """The position term for any geometry and any mask; rows that no query may use are already zero in `values`."""
    b, n, h, k = q.shape
    m, u = values.shape[1], values.shape[3]

    def some_queries(part: slice) -> Float[Tensor, "b c h v"]:
        at = torch.arange(part.start, part.stop, device=q.device)
        pairs = None if allowed.pairs is None else allowed.pairs[:, part]
        return contract(q[:, part], embeddings(table, geometry, at), values, pairs)

    return over_queries(some_queries, n, per_query=b * m * u * max(h, k))
