"""The causal content term in time and memory linear in n: Eq. 5 with m <= n as running sums.

For each (k, u) the keys up to n are weighted by exp(K[m] - s[n]) / Z[n] with s the running maximum: one shift for the
whole sequence would turn early queries into 0/0 when later keys are much larger. Positions are cut into chunks. Pairs
inside a chunk are weighted one by one; all that comes before a chunk is one carried sum of (k, u, v) numbers.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from lambdanets.ops.keys import KeyNorm, inverse_root

# Work inside a chunk grows with its length, the number of carried sums falls with it.
CHUNK = 32


class _Weights(NamedTuple):
    """How much key m counts, as products that never leave float32's range (c, d chunks; n, m inside a chunk)."""

    inside: Float[Tensor, "b c #n m k u"]  # of key m for query n of its own chunk, zero for later keys
    own: Float[Tensor, "b c m k u"]  # of key m in the sum of its chunk
    carry: Float[Tensor, "#b c d #k #u"]  # of chunk d in what chunk c receives, zero unless d < c
    onto: Float[Tensor, "#b c #n #k #u"]  # of what chunk c receives for its query n
    scale: Float[Tensor, "#b c n k u"]  # of everything for query n: the normalisation of the keys


def causal_content(
    q: Float[Tensor, "b n h k"],
    keys: Float[Tensor, "b n k u"],
    values: Float[Tensor, "b n v u"],
    key_norm: KeyNorm,
    rows: Bool[Tensor, "#b n"] | None,
    *,
    strict: bool = False,
    chunk: int = CHUNK,
) -> Float[Tensor, "b n h v"]:
    """Each query reads the content lambda of the allowed `rows` up to its own position, before it if `strict`."""
    n = q.shape[1]
    exists = torch.ones(1, n, dtype=torch.bool, device=q.device) if rows is None else rows
    if strict:  # before n is up to n in a context that comes one step later
        keys, values, exists = _delayed(keys), _delayed(values), _delayed(exists)
    q, keys, values, exists = (_in_chunks(x, chunk) for x in (q, keys, values, exists))
    weigh = _softmax_weights if key_norm == "softmax" else _plain_weights
    w = weigh(keys, exists[..., None, None], key_norm)

    scaled = q[..., None] * w.scale[:, :, :, None]
    scores = torch.einsum("bcnhku,bcnmku->bcnhmu", scaled, w.inside)
    y = torch.einsum("bcnhmu,bcmvu->bcnhv", scores, values)
    sums = torch.einsum("bcmku,bcmvu->bckuv", w.own, values)
    received = torch.einsum("bcdku,bdkuv->bckuv", w.carry, sums)
    y = y + torch.einsum("bcnhku,bckuv->bcnhv", scaled * w.onto[:, :, :, None], received)
    return y.flatten(1, 2)[:, :n]


def _softmax_weights(keys: Float[Tensor, "b c n k u"], exists: Bool[Tensor, "#b c n 1 1"], _: KeyNorm) -> _Weights:
    chunks, chunk = keys.shape[1:3]
    keys = torch.where(exists, keys, -torch.inf)
    with torch.no_grad():  # the result does not depend on the shifts, only its rounding does
        running = keys.flatten(1, 2).cummax(1).values.reshape_as(keys)
        top = running[:, :, -1]  # the largest key up to the end of a chunk
        earlier = torch.cat([torch.full_like(top[:, :1], -torch.inf), top], 1)[:, :chunks]
        shift, limit = _finite(running), _finite(earlier)
    seen = _up_to(chunk, keys.device, diagonal=0)[..., None, None]
    inside = torch.exp(torch.where(seen, keys[:, :, None] - shift[:, :, :, None], -torch.inf))
    own = torch.exp(keys - _finite(top)[:, :, None])
    before = _up_to(chunks, keys.device, diagonal=-1)[..., None, None]
    carry = torch.exp(torch.where(before, top[:, None] - limit[:, :, None], -torch.inf))
    onto = torch.exp(earlier[:, :, None] - shift)
    total = inside.sum(3) + onto * torch.einsum("bcdku,bdku->bcku", carry, own.sum(2))[:, :, None]
    some = total > 0
    scale = torch.where(some, 1.0 / torch.where(some, total, 1.0), 0.0)
    return _Weights(inside, own, carry, onto, scale)


def _plain_weights(keys: Float[Tensor, "b c n k u"], exists: Bool[Tensor, "#b c n 1 1"], key_norm: KeyNorm) -> _Weights:
    chunks, chunk = keys.shape[1:3]
    keys = torch.where(exists, keys, 0.0)
    inside = torch.where(_up_to(chunk, keys.device, diagonal=0)[..., None, None], keys[:, :, None], 0.0)
    carry = _up_to(chunks, keys.device, diagonal=-1)[None, ..., None, None].to(keys.dtype)
    ones = torch.ones_like(keys)
    if key_norm == "none":
        return _Weights(inside, keys, carry, ones, ones)
    length = keys.square().flatten(1, 2).cumsum(1).reshape_as(keys)
    return _Weights(inside, keys, carry, ones, inverse_root(length))


def _up_to(size: int, device: torch.device, diagonal: int) -> Bool[Tensor, "n m"]:
    return torch.ones(size, size, dtype=torch.bool, device=device).tril(diagonal)


def _finite(shift: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """Where no key exists yet there is nothing to shift."""
    return torch.where(shift == -torch.inf, 0.0, shift)


def _delayed(x: Shaped[Tensor, "b n *c"]) -> Shaped[Tensor, "b n *c"]:
    """Every position one step later; nothing stands at the first."""
    return torch.cat([torch.zeros_like(x[:, :1]), x], 1)[:, : x.shape[1]]


def _in_chunks(x: Shaped[Tensor, "b n *s"], chunk: int) -> Shaped[Tensor, "b c l *s"]:
    """Cut positions into chunks, filling the last one with zeros: they come later than every query that counts."""
    n = x.shape[1]
    chunks = (n + chunk - 1) // chunk
    if torch.compiler.is_exporting():  # torch cannot follow the divisions for a symbolic n: all is one chunk
        chunks, chunk = 1, n
    x = F.pad(x, (0, 0) * (x.ndim - 2) + (0, chunks * chunk - n))
    return x.reshape(x.shape[0], chunks, chunk, *x.shape[2:])
