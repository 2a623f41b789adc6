"""What attention is made of, one number at a time: scores, maps, look-ups, positions.

Scores take queries (b, n, h, k) and keys (b, m, h, l) to (b, h, n, m), as the fast ones do.
"""

import math
from collections.abc import Callable, Sequence
from itertools import product

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lambdanets.ops.attention.reference.pairs import positions, softmax

# The score of one query and one key in head h.
Score = Callable[[Tensor, Tensor, int], Tensor]


def every_pair(q: Float[Tensor, "b n h k"], keys: Float[Tensor, "b m h l"], score: Score) -> Float[Tensor, "b h n m"]:
    b, n, h, _ = q.shape
    m = keys.shape[1]
    found = [score(q[i, x, j], keys[i, y, j], j) for i, j, x, y in product(range(b), range(h), range(n), range(m))]
    return torch.stack(found).reshape(b, h, n, m)


def dot(q: Float[Tensor, "k"], key: Float[Tensor, "k"]) -> Float[Tensor, ""]:
    return torch.stack([q[c] * key[c] for c in range(len(q))]).sum()


def through(x: Float[Tensor, "k"], weight: Float[Tensor, "k l"]) -> Float[Tensor, "l"]:
    """W^T x"""
    return torch.stack([dot(x, weight[:, c]) for c in range(weight.shape[1])])


def dot_scores(q: Tensor, keys: Tensor) -> Tensor:
    """q . k"""
    return every_pair(q, keys, lambda x, y, h: dot(x, y))


def scaled_dot_scores(q: Tensor, keys: Tensor) -> Tensor:
    """q . k / sqrt(k)"""
    return every_pair(q, keys, lambda x, y, h: dot(x, y) / math.sqrt(len(x)))


def general_scores(q: Tensor, keys: Tensor, weight: Float[Tensor, "h k l"]) -> Tensor:
    """q^T W k"""
    return every_pair(q, keys, lambda x, y, h: dot(through(x, weight[h]), y))


def additive_scores(
    q: Tensor,
    keys: Tensor,
    of_q: Float[Tensor, "h k a"],
    of_keys: Float[Tensor, "h l a"],
    weight: Float[Tensor, "h a"],
) -> Tensor:
    """w . tanh(W q + U k)"""
    return every_pair(q, keys, lambda x, y, h: dot(weight[h], torch.tanh(through(x, of_q[h]) + through(y, of_keys[h]))))


def cosine_scores(q: Tensor, keys: Tensor) -> Tensor:
    """q . k / (|q| |k|)"""
    return every_pair(q, keys, lambda x, y, h: dot(x, y) / (dot(x, x).sqrt() * dot(y, y).sqrt()))


def softargmax(
    scores: Float[Tensor, "n m"], beta: float, mask: Bool[Tensor, "n m"] | None = None
) -> Float[Tensor, "n m"]:
    """exp(beta s) / sum exp(beta s) over what the mask leaves, row by row; zeros elsewhere."""
    rows = []
    for i, row in enumerate(scores):
        left = [j for j in range(len(row)) if mask is None or bool(mask[i, j])]
        a = softmax(beta * row[left])
        rows.append(torch.stack([a[left.index(j)] if j in left else row.new_zeros(()) for j in range(len(row))]))
    return torch.stack(rows)


def hard_map(scores: Float[Tensor, "n m"], mask: Bool[Tensor, "n m"] | None = None) -> Float[Tensor, "n m"]:
    """One at the first of the largest scores that the mask leaves, zeros elsewhere."""
    a = torch.zeros_like(scores)
    for i, row in enumerate(scores.tolist()):
        left = [j for j in range(len(row)) if mask is None or bool(mask[i, j])]
        if left:
            a[i, max(left, key=lambda j, row=row: row[j])] = 1.0  # type: ignore[misc]
    return a


def look_up(
    query: Float[Tensor, "n k"], keys: Float[Tensor, "m k"], values: Float[Tensor, "m v"], beta: float
) -> Float[Tensor, "n v"]:
    """sum_m softmax_m(beta q_n . k_m) v_m; at an infinite beta the value of the key with the largest product."""
    answers = []
    for asked in query:
        scores = torch.stack([dot(asked, key) for key in keys])
        a = hard_map(scores[None])[0] if beta == math.inf else softmax(beta * scores)
        answers.append(torch.stack([a[m] * values[m] for m in range(len(keys))]).sum(0))
    return torch.stack(answers)


def sinusoidal_codes(n: int, d: int, base: float = 10_000.0) -> Float[Tensor, "n d"]:
    """sin(n base^(-2i / d)) in channel 2i, the cosine of the same in channel 2i + 1."""
    codes = torch.zeros(n, d, dtype=torch.float64)
    for position, channel in product(range(n), range(d)):
        angle = position * base ** (-(channel - channel % 2) / d)
        codes[position, channel] = math.cos(angle) if channel % 2 else math.sin(angle)
    return codes


def relative_embedding(
    tables: Sequence[Float[Tensor, "_ k"]], here: Sequence[int], there: Sequence[int], clip: bool
) -> Float[Tensor, "k"]:
    """sum over axes of r_(m - n), or of r_clip(m - n, k) with k = p // 2."""
    found = []
    for table, n, m in zip(tables, here, there, strict=True):
        k = len(table) // 2
        offset = max(-k, min(k, m - n)) if clip else m - n
        found.append(table[offset + k])
    return torch.stack(found).sum(0)


def relative_scores(
    q: Float[Tensor, "b n h k"],
    tables: Sequence[Float[Tensor, "_ k"]],
    queries: Sequence[int],
    context: Sequence[int],
    clip: bool = False,
) -> Float[Tensor, "b h n m"]:
    """q_n . r_(m - n)"""
    b, _, h, _ = q.shape
    grids = list(enumerate(positions(queries))), positions(context)
    found = [
        dot(q[i, n, j], relative_embedding(tables, here, there, clip))
        for i, j, (n, here), there in product(range(b), range(h), *grids)
    ]
    return torch.stack(found).reshape(b, h, math.prod(queries), math.prod(context))


def relative_values(
    map_: Float[Tensor, "b h n m"],
    tables: Sequence[Float[Tensor, "_ v"]],
    queries: Sequence[int],
    context: Sequence[int],
    clip: bool = False,
) -> Float[Tensor, "b n h v"]:
    """sum_m a_nm r'_(m - n)"""
    b, h, _, _ = map_.shape
    found = []
    for i, (n, here), j in product(range(b), enumerate(positions(queries)), range(h)):
        terms = [
            map_[i, j, n, m] * relative_embedding(tables, here, there, clip)
            for m, there in enumerate(positions(context))
        ]
        found.append(torch.stack(terms).sum(0))
    return torch.stack(found).reshape(b, math.prod(queries), h, -1)
