"""The slow oracle: Eq. 1 to 5 written out, to be read beside the paper.

Every step materialises the tensor that the equation names, in the dtype it is given, with nothing shared with the
production functions: indices come from Python loops, masks are always full `(b, n, m)`, keys are normalised for each
query on its own. Sizes of a dozen positions are what it is for.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def grid_index(
    context: Sequence[int],
    queries: Sequence[int],
    scope: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> Int[Tensor, "n m"]:
    """r(n, m) on a grid, per axis p = (m - s n) / dilation + (r - 1) / 2, axes in raster order; -1 out of scope."""
    rows = []
    for n in itertools.product(*map(range, queries)):
        row = []
        for m in itertools.product(*map(range, context)):
            p = 0
            for axis, r in enumerate(scope):
                steps, rest = divmod(m[axis] - stride[axis] * n[axis], dilation[axis])
                along = steps + (r - 1) // 2
                if rest or not 0 <= along < r:
                    p = -1
                    break
                p = p * r + along
            row.append(p)
        rows.append(row)
    shape = (math.prod(queries), math.prod(context))
    return torch.tensor(rows, dtype=torch.long).reshape(shape)


def past(context: Sequence[int], queries: Sequence[int], stride: Sequence[int], strict: bool) -> Bool[Tensor, "n m"]:
    """Which context positions come before query n, or at it unless `strict`, in raster order."""
    rows = []
    for n in itertools.product(*map(range, queries)):
        now = tuple(s * i for s, i in zip(stride, n, strict=True))
        rows.append([m < now if strict else m <= now for m in itertools.product(*map(range, context))])
    return torch.tensor(rows, dtype=torch.bool).reshape(math.prod(queries), math.prod(context))


def embeddings(table: Float[Tensor, "p k u"], index: Int[Tensor, "*i n m"]) -> Float[Tensor, "*i n m k u"]:
    """E[n, m] = R[r(n, m)], zero where the index is negative."""
    inside = (index >= 0)[..., None, None]
    return torch.where(inside, table[index.clamp(min=0)], torch.zeros((), dtype=table.dtype))


def normalised_keys(
    keys: Float[Tensor, "b m k u"], allowed: Bool[Tensor, "b n m"], kind: str
) -> Float[Tensor, "b n m k u"]:
    """Kbar[b, n]: the keys normalised over the positions that query n may use, zero elsewhere."""
    b, n, m = allowed.shape
    _, _, k, u = keys.shape
    rows = []
    for example, query in itertools.product(range(b), range(n)):
        used = allowed[example, query].nonzero().flatten()
        chosen = keys[example, used]
        if kind == "softmax":
            chosen = torch.softmax(chosen, 0)
        elif kind == "l2":
            length = (chosen**2).sum(0).sqrt()
            chosen = torch.where(length > 0, chosen / torch.where(length > 0, length, 1.0), 0.0)
        rows.append(torch.zeros(m, k, u, dtype=keys.dtype).index_copy(0, used, chosen))
    return torch.stack(rows).reshape(b, n, m, k, u) if rows else keys.new_zeros(b, n, m, k, u)


def content_lambda(
    keys: Float[Tensor, "b m k u"],
    values: Float[Tensor, "b m v u"],
    allowed: Bool[Tensor, "b n m"],
    key_norm: str = "softmax",
) -> Float[Tensor, "b n k v"]:
    """Eq. 1 and 5: lc[b,n,k,v] = sum over allowed m, and u, of Kbar[b,n,m,k,u] V[b,m,v,u]."""
    return torch.einsum("bnmku,bmvu->bnkv", normalised_keys(keys, allowed, key_norm), values)


def position_lambda(
    embedded: Float[Tensor, "... n m k u"], values: Float[Tensor, "b m v u"], allowed: Bool[Tensor, "b n m"]
) -> Float[Tensor, "b n k v"]:
    """Eq. 1 and 5: lp[b,n,k,v] = sum over allowed m, and u, of E[n,m,k,u] V[b,m,v,u]."""
    b, n, m = allowed.shape
    embedded = embedded.expand(b, n, m, *embedded.shape[-2:])
    return torch.einsum("bnm,bnmku,bmvu->bnkv", allowed.to(values.dtype), embedded, values)


def apply_lambda(q: Float[Tensor, "b n h k"], lambdas: Float[Tensor, "b n k v"]) -> Float[Tensor, "b n h v"]:
    """Eq. 2 and 4: Y[b,n,h,v] = sum_k Q[b,n,h,k] lambda[b,n,k,v]."""
    return torch.einsum("bnhk,bnkv->bnhv", q, lambdas)


def batch_norm(
    x: Float[Tensor, "b n c"],
    usable: Bool[Tensor, "b n"],
    weights: Mapping[str, Tensor],
    training: bool,
    eps: float = 1e-5,
) -> Float[Tensor, "b n c"]:
    """Statistics over the usable rows while training, the running ones otherwise."""
    if training:
        rows = x[usable]
        mean, var = rows.mean(0), rows.var(0, correction=0)
    else:
        mean, var = weights["running_mean"], weights["running_var"]
    return (x - mean) / torch.sqrt(var + eps) * weights["weight"] + weights["bias"]


def rms_norm(x: Float[Tensor, "b n c"], weight: Float[Tensor, "c"], eps: float = 1e-6) -> Float[Tensor, "b n c"]:
    """Each position divided by the root of its mean square."""
    return x / torch.sqrt((x**2).mean(-1, keepdim=True) + eps) * weight


def lambda_layer(
    x: Float[Tensor, "b i d"],
    context: Float[Tensor, "b m e"] | None,
    weights: Mapping[str, Tensor],
    *,
    size: Sequence[int],
    context_size: Sequence[int] | None = None,
    k: int,
    h: int,
    u: int,
    scope: Sequence[int] | None,
    stride: Sequence[int],
    dilation: Sequence[int],
    terms: str,
    key_norm: str,
    norm: Literal["batch", "rms", "none"],
    causal: bool | Literal["strict"],
    mask: Bool[Tensor, "..."] | None = None,
    relation: Int[Tensor, "... n m"] | None = None,
    training: bool,
) -> Float[Tensor, "b n d_out"]:
    """A whole layer on tokens in raster order of `size`, from the tensors of its state_dict.

    `weights` has the state_dict's names. Context rows that no query may use are zeros and stay out of the batch
    statistics; in self-context they stay out of those of the queries too.
    """
    b = x.shape[0]
    own = context is None
    context_tokens = x if context is None else context
    context_size = size if context_size is None else context_size
    strided = [len(range(0, n, s)) for n, s in zip(size, stride, strict=True)]
    every = torch.arange(math.prod(size)).reshape(*size)
    taken = every[tuple(slice(None, None, s) for s in stride)].flatten()
    n, m = math.prod(strided), math.prod(context_size)

    allowed = torch.ones(b, n, m, dtype=torch.bool)
    if mask is not None:
        allowed = allowed & mask
    if causal:
        allowed = allowed & past(context_size, strided, stride, causal == "strict")
    usable = allowed.any(1)
    context_tokens = torch.where(usable[..., None], context_tokens, 0.0)
    counted = usable[:, taken] if own else torch.ones(b, n, dtype=torch.bool)

    q = x[:, taken] @ weights["query.weight"].T
    values = context_tokens @ weights["value.weight"].T
    if norm == "batch":
        q = batch_norm(q, counted, _under("query_norm.", weights), training)
        values = batch_norm(values, usable, _under("value_norm.", weights), training)
    elif norm == "rms":
        q = rms_norm(q, weights["query_norm.weight"])
        values = rms_norm(values, weights["value_norm.weight"])
    q = q.reshape(b, n, h, k)
    values = values.reshape(b, m, values.shape[-1] // u, u)

    lambdas = torch.zeros(b, n, k, values.shape[2], dtype=x.dtype)
    if terms != "position":
        keys = (context_tokens @ weights["key.weight"].T).reshape(b, m, k, u)
        lambdas = lambdas + content_lambda(keys, values, allowed, key_norm)
    if terms != "content":
        if relation is None:
            assert scope is not None
            relation = grid_index(context_size, strided, scope, stride, dilation)
        lambdas = lambdas + position_lambda(embeddings(weights["table.weight"], relation), values, allowed)
        if "position_bias" in weights:
            lambdas = lambdas + weights["position_bias"][:, None]
    return apply_lambda(q, lambdas).reshape(b, n, -1)


def _under(prefix: str, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): w for name, w in weights.items() if name.startswith(prefix)}
