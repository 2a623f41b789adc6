"""The causal content term: Eq. 5 with m <= n as running sums, without a table of all pairs.

For each (k, u) the softmax weighs key m for query n by exp(K[m] - s[n]) / Z[n], s the largest key up to n: one shift
for the whole sequence would turn early queries into 0/0 when later keys are much larger. L2 does the same with
K[m] / s[n]. Positions are cut into chunks. Pairs inside a chunk are weighed one by one; what comes before a chunk is
one carried sum of (k, u, v) numbers, combined from the chunks' own in log2(chunks) steps. A compiled or traced program
has to serve all lengths, so it has no number of steps: there all pairs of chunks are weighed, and chunks are longer.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from lambdanets.compat import is_tracing
from lambdanets.ops.keys import KeyNorm, inverse_root

# For all lengths: as many pairs inside chunks as of chunks at 32,768 positions.
COMPILED_CHUNK = 32


def chunk_for(v: int) -> int:
    """A power of two near 2 sqrt(v): work inside a chunk grows with its length, carried sums of v numbers get fewer.

    >>> [chunk_for(v) for v in (1, 16, 64, 256)]
    [4, 8, 16, 32]
    """
    return max(4, 1 << (1 + round(math.log2(v) / 2)))


def serves_all_lengths() -> bool:
    """Whether a program is being made whose number of chunks is a symbol."""
    return torch.compiler.is_compiling() or is_tracing()


# Of what stands 1, 2, 4, ... chunks before, or of every chunk (the last c) for every other.
Decay = list[Float[Tensor, "b ..."]] | Float[Tensor, "b c c k u"]


class _Weights(NamedTuple):
    """How much key m counts for query n, in factors that stay in float range (c chunks; n, m inside a chunk)."""

    inside: Float[Tensor, "b c n m k u"]  # of key m for query n of its own chunk, zero for later keys
    own: Float[Tensor, "b c m k u"]  # of key m in the sum over its chunk
    decay: Decay  # of what earlier chunks hold, for later ones
    onto: Float[Tensor, "b c n k u"]  # of all that came before chunk c for its query n
    scale: Float[Tensor, "b c n k u"]  # of everything for query n: the normalisation of the keys


def causal_content(
    q: Float[Tensor, "b n h k"],
    keys: Float[Tensor, "b n k u"],
    values: Float[Tensor, "b n v u"],
    key_norm: KeyNorm,
    rows: Bool[Tensor, "#b n"] | None,
    *,
    strict: bool = False,
    chunk: int | None = None,
) -> Float[Tensor, "b n h v"]:
    """Each query reads the content lambda of the allowed `rows` up to its own position, before it if `strict`."""
    n = q.shape[1]
    if chunk is None:
        chunk = COMPILED_CHUNK if serves_all_lengths() else chunk_for(values.shape[2])
    exists = torch.ones(1, n, dtype=torch.bool, device=q.device) if rows is None else rows
    if strict:  # before n is up to n in a context that comes one step later
        keys, values, exists = delayed(keys), delayed(values), delayed(exists)
    q, keys, values, exists = (in_chunks(x, chunk) for x in (q, keys, values, exists))
    w = _weigh(keys, exists[..., None, None], key_norm)

    scaled = q[..., None] * w.scale[:, :, :, None]
    scores = torch.einsum("bcnhku,bcnmku->bcnhmu", scaled, w.inside)
    y = torch.einsum("bcnhmu,bcmvu->bcnhv", scores, values)
    received = _received(torch.einsum("bcmku,bcmvu->bckuv", w.own, values), w.decay)
    y = y + torch.einsum("bcnhku,bckuv->bcnhv", scaled * w.onto[:, :, :, None], received)
    return y.flatten(1, 2)[:, :n]


def _weigh(keys: Float[Tensor, "b c n k u"], exists: Bool[Tensor, "#b c n 1 1"], key_norm: KeyNorm) -> _Weights:
    chunks, chunk = keys.shape[1:3]
    decay: Decay
    # A key's level is what the running maximum is taken of; a key that does not exist has the lowest.
    lowest = -torch.inf if key_norm == "softmax" else 0.0
    keys = torch.where(exists, keys, lowest)
    with torch.no_grad():  # the result does not depend on the levels, only its rounding does
        level = {"softmax": keys, "l2": keys.abs(), "none": torch.ones_like(keys)}[key_norm]
        running = level.flatten(1, 2).cummax(1).values.reshape_as(level)
        top = running[:, :, -1]  # up to the end of a chunk
        earlier = torch.cat([torch.full_like(top[:, :1], lowest), top], 1)[:, :chunks]  # up to its beginning

    def relative(x: Float[Tensor, "..."], to: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        to = torch.where(to == lowest, float(key_norm != "softmax"), to)  # where nothing exists, all is zero anyway
        return torch.exp(x - to) if key_norm == "softmax" else x / to

    seen = torch.ones(chunk, chunk, dtype=torch.bool, device=keys.device).tril()[..., None, None]
    inside = relative(torch.where(seen, keys[:, :, None], lowest), running[:, :, :, None])
    own = relative(keys, top[:, :, None])
    if serves_all_lengths():
        before = torch.ones(chunks, chunks, dtype=torch.bool, device=keys.device).tril(-1)[..., None, None]
        decay = relative(torch.where(before, top[:, None], lowest), earlier[:, :, None])
    else:
        steps = [2**i for i in range(max(chunks - 1, 0).bit_length())]
        decay = [relative(top[:, :-step], top[:, step:]) for step in steps]
    onto = relative(earlier[:, :, None], running)
    if key_norm == "none":
        return _Weights(inside, own, decay, onto, torch.ones_like(onto))
    # The norm is 1 for the sum of the weights, 2 for the root of the sum of their squares.
    power = 1 if key_norm == "softmax" else 2
    powers = [d.pow(power) for d in decay] if isinstance(decay, list) else decay.pow(power)
    received = _received(own.pow(power).sum(2)[..., None], powers)[..., 0]
    total = inside.pow(power).sum(3) + onto.pow(power) * received[:, :, None]
    some = total > 0
    scale = inverse_root(total) if power == 2 else torch.where(some, 1.0 / torch.where(some, total, 1.0), 0.0)
    return _Weights(inside, own, decay, onto, scale)


def _received(sums: Float[Tensor, "b c k u v"], decay: Decay) -> Float[Tensor, "b c k u v"]:
    """What each chunk receives of all before it, relative to the level at its beginning.

    After the step of length 2^i, a chunk holds the sum over the last 2^(i + 1) chunks up to itself.
    """
    if not isinstance(decay, list):
        return torch.einsum("bcdku,bdkuv->bckuv", decay, sums)
    for i, factor in enumerate(decay):
        sums = torch.cat([sums[:, : 2**i], sums[:, 2**i :] + factor[..., None] * sums[:, : -(2**i)]], 1)
    return delayed(sums)


def delayed(x: Shaped[Tensor, "b n *c"]) -> Shaped[Tensor, "b n *c"]:
    """Every position one step later; nothing stands at the first."""
    return torch.cat([torch.zeros_like(x[:, :1]), x], 1)[:, : x.shape[1]]


def in_chunks(x: Shaped[Tensor, "b n *s"], chunk: int) -> Shaped[Tensor, "b c l *s"]:
    """Cut positions into chunks, filling the last one with zeros: they come later than every query that counts."""
    n = x.shape[1]
    # Where n is a symbol, a last chunk that is never full: whether there is one to fill would be asked for each length.
    chunks = n // chunk + 1 if serves_all_lengths() else (n + chunk - 1) // chunk
    if torch.compiler.is_exporting():  # torch cannot follow the divisions for a symbolic n: all is one chunk
        chunks, chunk = 1, n
    x = F.pad(x, (0, 0) * (x.ndim - 2) + (0, chunks * chunk - n))
    return x.reshape(x.shape[0], chunks, chunk, *x.shape[2:])
