"""Linear attention: exp(q . k) becomes phi(q) . phi(k), so that the context can be summed up before a query is there.

    Y_n = phi(q_n)^T (sum_m phi(k_m) v_m^T) / (phi(q_n)^T sum_m phi(k_m)),    phi(x) = elu(x) + 1 >= e^-40

The sums over m are a content lambda that all queries share; time and memory grow with n + m, not with n m. Causal sums
are taken in chunks: pairs inside a chunk are weighed one by one, all that comes before it is one sum of k v numbers.
"""

import math

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float
from torch import Tensor

from lambdanets.ops.causal import delayed, in_chunks
from lambdanets.ops.masks import drop_unusable
from lambdanets.ops.precision import in_full_precision


def positive_features(x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """phi(x) = elu(x) + 1, which is x + 1 above zero and exp(x) below, and never less than e^-40.

    As a sum of elu and 1 it would round to zero, below -17 in float32, -37 in float64, and weights that are all
    zero have no mean. With the floor, products of two features stay in the range of float32.

    >>> positive_features(torch.tensor([-torch.inf, 0.0, 2.0]))
    tensor([4.2484e-18, 1.0000e+00, 3.0000e+00])
    """
    return x.clamp(-40.0, 0.0).exp() + x.relu()


@in_full_precision
def linear_attention(
    q: Float[Tensor, "b n h k"],
    keys: Float[Tensor, "b m h k"],
    values: Float[Tensor, "b m h v"],
    *,
    rows: Bool[Tensor, "#b m"] | None = None,
    causal: bool = False,
    chunk: int | None = None,
) -> Float[Tensor, "b n h v"]:
    """Attention with elu + 1 as feature map; a query that may use nothing gets zeros.

    Args:
        rows: the context positions that all queries may use, True = may use.
        causal: query n uses the positions up to n; needs n == m.
        chunk: positions of a chunk of causal sums.
    """
    n, m, k, v = q.shape[1], keys.shape[1], q.shape[3], values.shape[3]
    if causal and n != m:
        raise ValueError(f"causal linear attention needs as many queries as context positions, got n={n}, m={m}")
    values = F.pad(drop_unusable(values, rows), (0, 1), value=1.0)  # the last column gives the denominator
    q, keys = positive_features(q), positive_features(keys)
    if rows is not None:
        keys = keys.masked_fill(~rows[..., None, None], 0.0)
    if causal:
        sums = _causal_sums(q, keys, values, chunk_for(k, v) if chunk is None else chunk)
    else:
        sums = torch.einsum("bnhk,bhkv->bnhv", q, torch.einsum("bmhk,bmhv->bhkv", keys, values))
    y, total = sums[..., :-1], sums[..., -1:]
    return y / torch.where(total > 0, total, 1.0)  # where the total is zero, so is y


def chunk_for(k: int, v: int) -> int:
    """A power of two near sqrt(k v): a position has as many scores inside its chunk as numbers of the chunks' sums.

    >>> [chunk_for(d, d) for d in (4, 32, 64)]
    [16, 32, 64]
    """
    return max(16, 1 << round(math.log2(k * v) / 2))


def _causal_sums(
    q: Float[Tensor, "b n h k"], keys: Float[Tensor, "b n h k"], values: Float[Tensor, "b n h v"], chunk: int
) -> Float[Tensor, "b n h v"]:
    """sum over m <= n of (q_n . k_m) v_m."""
    n = q.shape[1]
    q, keys, values = (in_chunks(x, chunk) for x in (q, keys, values))
    inside = torch.einsum("bcnhk,bcmhk->bchnm", q, keys).tril()
    before = delayed(torch.einsum("bcmhk,bcmhv->bchkv", keys, values).cumsum(1))
    y = torch.einsum("bchnm,bcmhv->bcnhv", inside, values) + torch.einsum("bcnhk,bchkv->bcnhv", q, before)
    return y.flatten(1, 2)[:, :n]
