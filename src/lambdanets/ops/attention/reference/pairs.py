"""Attention query by query, from weights to output, for maps of any number of axes.

x is (b, n, d) and the context (b, m, e), positions in raster order of the grids `size` and `context_size`.
"""

import itertools
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Weights = Mapping[str, Tensor]


def linear(x: Float[Tensor, "... d"], weights: Weights, name: str) -> Float[Tensor, "... o"]:
    """x W^T + b with the tensors called name.weight and, if there is one, name.bias."""
    y = torch.einsum("...d,od->...o", x, weights[f"{name}.weight"])
    return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y


def positions(size: Sequence[int]) -> list[tuple[int, ...]]:
    """The coordinates of a grid in raster order."""
    return list(itertools.product(*map(range, size)))


def softmax(scores: Float[Tensor, "... m"]) -> Float[Tensor, "... m"]:
    """exp s / sum exp s; nothing of nothing."""
    if scores.shape[-1] == 0:
        return scores
    e = torch.exp(scores - scores.detach().amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def attention(
    x: Float[Tensor, "b n d"],
    context: Float[Tensor, "b m e"],
    weights: Weights,
    *,
    h: int,
    g: int,
    size: Sequence[int],
    context_size: Sequence[int],
    mask: Bool[Tensor, "b n m"],
    causal: bool = False,
    tables: Sequence[str] = (),
    prefix: str = "",
) -> Float[Tensor, "b n o"]:
    """Y_n = sum_m softmax_m(k^-1/2 q_n . (k_m + r_(m - n))) v_m over the m that query n may use, in h heads.

    `tables` names the tables of relative embeddings, one for each axis, or is empty. Head i of the queries uses head
    i // (h / g) of the g heads of keys and values.
    """
    q = linear(x, weights, f"{prefix}query").unflatten(-1, (h, -1))
    keys = linear(context, weights, f"{prefix}key").unflatten(-1, (g, -1))
    values = linear(context, weights, f"{prefix}value").unflatten(-1, (g, -1))
    here, there = positions(size), positions(context_size)
    rows = []
    for b, n, i in itertools.product(range(len(x)), range(len(here)), range(h)):
        used = [m for m in range(len(there)) if bool(mask[b, n, m]) and not (causal and m > n)]
        scores, of_head = [], i // (h // g)
        for m in used:
            key = keys[b, m, of_head]
            for axis, name in enumerate(tables):
                table = weights[name].squeeze(-1)
                key = key + table[there[m][axis] - here[n][axis] + len(table) // 2]
            scores.append((q[b, n, i] * key).sum() * q.shape[-1] ** -0.5)
        a = softmax(torch.stack(scores)) if used else x.new_zeros(0)
        rows.append((a[:, None] * values[b, used, of_head]).sum(0))
    y = torch.stack(rows).reshape(len(x), len(here), -1)
    return linear(y, weights, f"{prefix}out") if f"{prefix}out.weight" in weights else y
