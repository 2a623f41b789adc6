"""Layers that look along lines or at windows, position by position, from weights to output, on maps of two axes.

x is (b, n, d), positions in raster order of the grid `size`; `mask` (b, n, m) says who may use whom.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lambdanets.ops.attention.reference.pairs import Weights, attention, linear, positions, softmax


def window(size: Sequence[int], scope: Sequence[int]) -> Bool[Tensor, "n n"]:
    """Which positions are in whose window."""
    places = positions(size)
    rows = [
        [all(abs(m - n) <= r // 2 for n, m, r in zip(here, there, scope, strict=True)) for there in places]
        for here in places
    ]
    return torch.tensor(rows)


def axial(
    x: Float[Tensor, "b n d"],
    weights: Weights,
    *,
    h: int,
    size: Sequence[int],
    mask: Bool[Tensor, "b n n"],
    relative: bool,
) -> Float[Tensor, "b n o"]:
    """Every row by itself, then every column."""
    places = positions(size)
    for axis, name in ((1, "rows"), (0, "columns")):
        lines: list[list[int]] = [
            [n for n, place in enumerate(places) if place[1 - axis] == line] for line in range(size[1 - axis])
        ]
        answers: dict[int, Tensor] = {}
        for line in lines:
            y = attention(
                x[:, line],
                x[:, line],
                weights,
                h=h,
                g=h,
                size=(len(line),),
                context_size=(len(line),),
                mask=mask[:, line][:, :, line],
                tables=[f"{name}.offsets.tables.0.weight"] if relative else [],
                prefix=f"{name}.heads.",
            )
            answers |= {n: y[:, i] for i, n in enumerate(line)}
        x = torch.stack([answers[n] for n in range(len(places))], 1)
    return x


def convolution(
    x: Float[Tensor, "b n d"], kernel: Float[Tensor, "o d r s"], *, size: Sequence[int]
) -> Float[Tensor, "b n o"]:
    """Y_n = sum_o K_o x_(n + o), zeros outside of the map."""
    places = positions(size)
    reach = [side // 2 for side in kernel.shape[2:]]
    rows = []
    for i, j in places:
        y = x.new_zeros(len(x), len(kernel))
        for m, (k, l) in enumerate(places):
            if abs(k - i) <= reach[0] and abs(l - j) <= reach[1]:
                y = y + torch.einsum("bd,od->bo", x[:, m], kernel[:, :, k - i + reach[0], l - j + reach[1]])
        rows.append(y)
    return torch.stack(rows, 1)


def augmented(
    x: Float[Tensor, "b n d"], weights: Weights, *, h: int, size: Sequence[int], mask: Bool[Tensor, "b n n"]
) -> Float[Tensor, "b n o"]:
    """Channels of a convolution, to which positions that may not be used are zero, then those of attention."""
    usable = mask.any(1)
    attended = attention(
        x,
        x,
        weights,
        h=h,
        g=h,
        size=size,
        context_size=size,
        mask=mask,
        tables=[f"attention.offsets.tables.{axis}.weight" for axis in range(2)],
        prefix="attention.heads.",
    )
    return torch.cat([convolution(x * usable[..., None], weights["convolution.weight"], size=size), attended], -1)


def relation(
    x: Float[Tensor, "b n d"],
    weights: Weights,
    *,
    scope: Sequence[int],
    share: int,
    size: Sequence[int],
    mask: Bool[Tensor, "b n n"],
) -> Float[Tensor, "b n d"]:
    """Y_n = sum_m softmax_m(q_n . k_m + G(m - n)) x_m over the window of n, one map for every `share` channels."""
    places, near = positions(size), window(size, scope)
    g = x.shape[-1] // share
    q, keys = (linear(x, weights, name).unflatten(-1, (-1, g)) for name in ("query", "key"))
    values = x.unflatten(-1, (g, share))
    rows = []
    for b in range(len(x)):
        for n, here in enumerate(places):
            used = [m for m in range(len(places)) if bool(near[n, m] & mask[b, n, m])]
            if not used:
                rows.append(x.new_zeros(x.shape[-1]))
                continue
            scores = []
            for m in used:
                offset = [(k - i) / max(side // 2, 1) for i, k, side in zip(here, places[m], scope, strict=True)]
                hidden = linear(x.new_tensor(offset), weights, "prior.0").clamp(min=0)
                scores.append((q[b, n] * keys[b, m]).sum(0) + linear(hidden, weights, "prior.2"))
            a = softmax(torch.stack(scores, -1))
            rows.append(torch.einsum("gm,mgc->gc", a, values[b, used]).flatten())
    return torch.stack(rows).reshape(x.shape)


def vector_pairwise(
    x: Float[Tensor, "b n d"],
    weights: Weights,
    *,
    scope: Sequence[int],
    share: int,
    size: Sequence[int],
    mask: Bool[Tensor, "b n n"],
) -> Float[Tensor, "b n o"]:
    """Y_n = sum_m softmax_m(W relu(V [q_n - k_m, p_n - p_m] + c) + d) v_m over the window of n."""
    places, near = positions(size), window(size, scope)
    q, keys, values = (linear(x, weights, name) for name in ("query", "key", "value"))
    on_map = [[2 * i / max(extent - 1, 1) - 1 for i, extent in zip(place, size, strict=True)] for place in places]
    p = linear(x.new_tensor(on_map), weights, "place")
    rows = []
    for b in range(len(x)):
        for n in range(len(places)):
            used = [m for m in range(len(places)) if bool(near[n, m] & mask[b, n, m])]
            if not used:
                rows.append(x.new_zeros(values.shape[-1]))
                continue
            pairs = torch.stack([torch.cat([q[b, n] - keys[b, m], p[n] - p[m]]) for m in used])
            scores = linear(linear(pairs, weights, "relate").clamp(min=0), weights, "weigh")
            a = softmax(scores.T).repeat_interleave(share, 0)
            rows.append(torch.einsum("om,mo->o", a, values[b, used]))
    return torch.stack(rows).reshape(len(x), len(places), -1)


def vector_patchwise(
    x: Float[Tensor, "b n d"],
    weights: Weights,
    *,
    scope: Sequence[int],
    share: int,
    size: Sequence[int],
    mask: Bool[Tensor, "b n n"],
) -> Float[Tensor, "b n o"]:
    """Y_n = sum_m A_(m - n) v_m with A = W relu(V [q_n, k of the window of n] + c) + d; zeros outside of the map."""
    places = positions(size)
    q, keys, values = (linear(x, weights, name) for name in ("query", "key", "value"))
    keys, values = (part * mask.any(1)[..., None] for part in (keys, values))
    steps = [(k - scope[0] // 2, l - scope[1] // 2) for k, l in positions(scope)]
    rows = []
    for n, (i, j) in enumerate(places):
        at = [places.index((i + k, j + l)) if (i + k, j + l) in places else None for k, l in steps]
        patch = [torch.zeros_like(q[:, n]) if m is None else keys[:, m] for m in at]
        hidden = linear(torch.cat([q[:, n], *patch], -1), weights, "relate").clamp(min=0)
        a = linear(hidden, weights, "weigh").unflatten(-1, (-1, len(steps))).repeat_interleave(share, 1)
        rows.append(sum(a[..., o] * values[:, m] for o, m in enumerate(at) if m is not None))
    return torch.stack(rows, 1)
