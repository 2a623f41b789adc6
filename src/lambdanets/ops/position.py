"""The position term (Eq. 1, 3, 4 and 5): what a query reads through the embeddings of where things are.

    lp[b, n, k, v] = sum_{m,u} E[n,m,k,u] V[b,m,v,u]
    Y[b, n, h, v]  = sum_k Q[b,n,h,k] lp[b,n,k,v]

There is nothing non-linear between Q, E and V, so any order of contraction gives the same Y: `plans` has several.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lambdanets.compat import is_transformed
from lambdanets.ops.geometry import Geometry, Relation
from lambdanets.ops.masks import drop_unusable, read_mask
from lambdanets.ops.pairs import contract, over_queries
from lambdanets.ops.plans import Inputs, Plan, Problem, choose
from lambdanets.ops.precision import in_full_precision


@in_full_precision
def position_term(
    q: Float[Tensor, "b n h k"],
    values: Float[Tensor, "b m v u"],
    table: Float[Tensor, "p k u"],
    geometry: Geometry,
    *,
    mask: Bool[Tensor, "..."] | None = None,
    plan: str | Plan | None = None,
) -> Float[Tensor, "b n h v"]:
    """The position part of the output, for embeddings E[n, m] = table[r(n, m)].

    Args:
        geometry: a `Grid` (local or global windows, dilation, stride, causal) or a `Relation` with its own index.
        mask: which context a query may use, True = may use, broadcastable to (b, n, m).
        plan: how to compute it, one of `lambdanets.ops.plans.PLANS` or its name; the cheapest by default.

    >>> from lambdanets.ops import Grid
    >>> q, values, table = torch.randn(2, 35, 4, 16), torch.randn(2, 35, 3, 1), torch.randn(9, 16, 1)
    >>> grid = Grid.of((5, 7), scope=3)
    >>> position_term(q, values, table, grid).shape
    torch.Size([2, 35, 4, 3])
    """
    check_geometry(q, values, table, geometry)
    allowed = read_mask(mask, q.shape[0], q.shape[1], values.shape[1])
    inputs = Inputs(q, drop_unusable(values, allowed.usable()), table, geometry, allowed)
    return choose(Problem.of(inputs), plan).run(inputs)


@in_full_precision
def embedded_position_term(
    q: Float[Tensor, "b n h k"],
    values: Float[Tensor, "b m v u"],
    embedded: Float[Tensor, "n m k u"] | Float[Tensor, "b n m k u"],
    *,
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "b n h v"]:
    """The position part of the output for given embeddings E, shared by the batch or one per example."""
    n, m = q.shape[1], values.shape[1]
    if embedded.ndim not in (4, 5) or tuple(embedded.shape[-4:-2]) != (n, m):
        raise ValueError(f"embedded must be (n, m, k, u) with n={n}, m={m}, got shape {tuple(embedded.shape)}")
    allowed = read_mask(mask, q.shape[0], n, m)
    values = drop_unusable(values, allowed.usable())
    embedded = embedded if embedded.ndim == 5 else embedded[None]

    def some_queries(part: slice) -> Float[Tensor, "b c h v"]:
        pairs = None if allowed.pairs is None else allowed.pairs[:, part]
        return contract(q[:, part], embedded[:, part], values, pairs)

    return over_queries(some_queries, n, per_query=q.shape[0] * m * values.shape[3] * q.shape[2])


@in_full_precision
def position_bias_term(q: Float[Tensor, "b n h k"], bias: Float[Tensor, "k"]) -> Float[Tensor, "b n h 1"]:
    """What a bias c of every position lambda, lp[b,n,k,v] + c[k], adds to the output."""
    return torch.einsum("bnhk,k->bnh", q, bias)[..., None]


def check_geometry(
    q: Float[Tensor, "b n h k"],
    values: Float[Tensor, "b m v u"],
    table: Float[Tensor, "p k u"],
    geometry: Geometry,
) -> None:
    """The tensors belong together, and the geometry speaks of as many positions and rows as they have."""
    b, n, m, p = q.shape[0], q.shape[1], values.shape[1], table.shape[0]
    if values.shape[0] != b:
        raise ValueError(f"q and values must have the same batch, got b={b} and {values.shape[0]}")
    if tuple(table.shape[1:]) != (q.shape[3], values.shape[3]):
        raise ValueError(
            f"table must be (p, k, u) with k={q.shape[3]} of q and u={values.shape[3]} of values, "
            f"got {tuple(table.shape)}"
        )
    if isinstance(geometry, Relation):
        check_relation(geometry.index, b, n, m, p)
        return
    if (geometry.n, geometry.m) != (n, m):
        raise ValueError(f"q has n={n} and values m={m} positions, but {geometry} has {geometry.n} and {geometry.m}")
    if geometry.rows != p:
        raise ValueError(f"table must have {geometry.rows} rows for scope {geometry.scope}, got {p}")


def check_relation(index: Int[Tensor, "... n m"], b: int, n: int, m: int, p: int) -> None:
    """A relation index has a row of the table for every pair."""
    if tuple(index.shape) not in ((n, m), (b, n, m), (1, n, m)):
        raise ValueError(f"relation must be (n, m) = {(n, m)} or (b, n, m) = {(b, n, m)}, got {tuple(index.shape)}")
    if torch.compiler.is_compiling() or is_transformed() or index.device.type != "cpu" or index.numel() == 0:
        return  # vmap has no values to look at, and on another device the look would wait for them
    low, high = (int(x) for x in index.aminmax())
    if low < 0 or high >= p:
        raise ValueError(f"relation must index the {p} rows of the table, got values from {low} to {high}")
