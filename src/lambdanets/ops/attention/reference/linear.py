"""Attention in linear time, written out position by position, from weights to output.

x is (b, n, d) and the context (b, m, e), positions in raster order; batch and heads go along in einsums. A mask of
(b, n, m) says what each query may use.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lambdanets.ops.attention.reference.pairs import Weights, linear, positions, softmax


def linear_attention(
    x: Float[Tensor, "b n d"],
    context: Float[Tensor, "b m e"],
    weights: Weights,
    *,
    h: int,
    mask: Bool[Tensor, "b n m"],
    causal: bool = False,
    prefix: str = "",
) -> Float[Tensor, "b n o"]:
    """Y_n = sum_m a_nm v_m / sum_m a_nm with a_nm = phi(q_n) . phi(k_m), phi(x) = elu(x) + 1 >= e^-40, in h heads."""
    q, keys, values = _in_heads(x, context, weights, h, prefix)
    # elu(x) + 1 is x + 1 above zero and e^x below, of which elu + 1 would leave nothing for x < -37.
    q, keys = (torch.where(t > 0, t + 1, t.clamp(-40, 0).exp()) for t in (q, keys))
    rows = []
    for n in range(x.shape[1]):
        y, total = torch.zeros_like(values[:, 0]), torch.zeros_like(values[:, 0, :, :1])
        for m in range(n + 1 if causal else context.shape[1]):
            a = torch.einsum("bhk,bhk->bh", q[:, n], keys[:, m]) * mask[:, n, m, None]
            y, total = y + a[..., None] * values[:, m], total + a[..., None]
        rows.append(y / torch.where(total > 0, total, 1.0))
    return _joined(torch.stack(rows, 1), weights, prefix)


def gather_and_distribute(
    x: Float[Tensor, "b n d"],
    context: Float[Tensor, "b m e"],
    weights: Weights,
    *,
    h: int,
    mask: Bool[Tensor, "b n m"],
    prefix: str = "",
    out: str | None = None,
) -> Float[Tensor, "b n o"]:
    """Y_n = sum_k softmax_k(q_n)[k] G_k with G_k = sum_m softmax_m(keys)[m, k] v_m, in h heads.

    The mask is the same for all queries. `out` names the last projection, one of the heads by default.
    """
    q, keys, values = _in_heads(x, context, weights, h, prefix)
    examples = []
    for b in range(len(x)):
        used = [m for m in range(context.shape[1]) if bool(mask[b, 0, m])]
        maps = softmax(keys[b, used].movedim(0, -1))  # h k m, over the positions that are used
        gathered = torch.zeros(h, keys.shape[-1], values.shape[-1], dtype=x.dtype)
        for i, m in enumerate(used):
            gathered = gathered + torch.einsum("hk,hv->hkv", maps[..., i], values[b, m])
        examples.append(gathered)
    gathered = torch.stack(examples)
    rows = [torch.einsum("bhk,bhkv->bhv", softmax(q[:, n]), gathered) for n in range(x.shape[1])]
    return _joined(torch.stack(rows, 1), weights, prefix, out)


def projected_attention(
    x: Float[Tensor, "b n d"],
    context: Float[Tensor, "b m e"],
    weights: Weights,
    *,
    h: int,
    context_size: Sequence[int],
    mask: Bool[Tensor, "b n m"],
    prefix: str = "",
) -> Float[Tensor, "b n o"]:
    """Y_n = sum_r softmax_r(k^-1/2 q_n . k'_r) v'_r with k'_r = sum_m E[r, m] k_m, v'_r = sum_m F[r, m] v_m.

    E and F are called of_keys and of_values and have an axis for each of `context_size`. The mask is the same for all
    queries.
    """
    q, keys, values = _in_heads(x, context, weights, h, prefix)
    short_keys, short_values = x.new_zeros(()), x.new_zeros(())
    for m, place in enumerate(positions(context_size)):
        used = mask[:, 0, m, None, None, None]
        of_keys, of_values = (weights[f"{name}.weight"].movedim(0, -1)[place] for name in ("of_keys", "of_values"))
        short_keys = short_keys + used * torch.einsum("r,bhk->bhrk", of_keys, keys[:, m])
        short_values = short_values + used * torch.einsum("r,bhv->bhrv", of_values, values[:, m])
    rows = []
    for n in range(x.shape[1]):
        scores = torch.einsum("bhk,bhrk->bhr", q[:, n], short_keys) * q.shape[-1] ** -0.5
        rows.append(torch.einsum("bhr,bhrv->bhv", softmax(scores), short_values))
    return _joined(torch.stack(rows, 1), weights, prefix)


def _in_heads(
    x: Float[Tensor, "b n d"], context: Float[Tensor, "b m e"], weights: Weights, h: int, prefix: str
) -> tuple[Float[Tensor, "b n h k"], Float[Tensor, "b m h k"], Float[Tensor, "b m h v"]]:
    q = linear(x, weights, f"{prefix}query").unflatten(-1, (h, -1))
    keys = linear(context, weights, f"{prefix}key").unflatten(-1, (h, -1))
    values = linear(context, weights, f"{prefix}value").unflatten(-1, (h, -1))
    return q, keys, values


def _joined(
    y: Float[Tensor, "b n h v"], weights: Weights, prefix: str, out: str | None = None
) -> Float[Tensor, "b n o"]:
    name = f"{prefix}out" if out is None else out
    return linear(y.flatten(2), weights, name) if f"{name}.weight" in weights else y.flatten(2)
