"""Every (query, context) pair, query first: Y = (q . E) V, some queries at a time.

For what has no structure to use: masks that differ between queries, general relations, given embeddings. More queries
than fit are evaluated in slices, each computed again in the backward pass, so that memory grows with m, not with n m.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lambdanets.compat import is_transformed
from lambdanets.ops.geometry import Geometry, embeddings

# Elements of the largest tensor of a slice, 64 MB in float32: large enough to keep the matrix products busy, small
# beside the activations of a network.
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
    """Evaluate `some_queries` on slices of the n queries; `per_query` is the size of one query's largest intermediate.

    Each slice is computed again in the backward pass, so that autograd keeps nothing of it. An exported program has
    one slice: how many there are would depend on a size that may be symbolic.
    """
    if torch.compiler.is_exporting():
        return some_queries(slice(0, n))
    chunk = max(1, LARGEST // max(per_query, 1))
    parts = [slice(start, min(start + chunk, n)) for start in range(0, n, chunk)] or [slice(0, n)]
    slices = [recomputed(some_queries, part) for part in parts]
    return slices[0] if len(slices) == 1 else torch.cat(slices, dim=1)


def recomputed(function: Callable[..., Tensor], *args: Any) -> Tensor:
    """function(*args), of which autograd keeps no intermediate: the backward pass computes them again.

    Under the transforms of `torch.func` it keeps them: these do not support the hooks that checkpoints are made of.
    """
    if is_transformed():
        return function(*args)
    y: Tensor = checkpoint(function, *args, use_reentrant=False)
    return y


# Small operations that compute relative indices.
GATHER_OPERATIONS = 25


def gather_bytes(numbers: int, trains: bool) -> int:
    """Bytes that take as long to move as it takes to gather so many numbers of E, and to scatter their gradients."""
    return numbers * (40 if trains else 16)


def position_lambda(
    values: Float[Tensor, "b m v u"],
    table: Float[Tensor, "p k u"],
    geometry: Geometry,
    at: Int[Tensor, "n"],
    pairs: Bool[Tensor, "#b n m"] | None = None,
) -> Float[Tensor, "b n k v"]:
    """Eq. 1: the position lambdas themselves, of the queries `at`; `pairs` says what each of them may use."""
    embedded = embeddings(table, geometry, at)
    if pairs is not None:
        embedded = embedded.masked_fill(~pairs[..., None, None], 0.0)
    if embedded.shape[0] == 1:
        return torch.einsum("nmku,bmvu->bnkv", embedded[0], values)
    return torch.einsum("bnmku,bmvu->bnkv", embedded, values)
