"""Gates written out position by position, from weights to output; batch norms use their running statistics.

x is (b, n, d) and the context (b, m, e), positions in raster order of the grids `size`. A mask of (b, n, m) is the same
for all queries.
"""

import itertools
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lambdanets.ops.attention.reference.pairs import Weights, linear, positions


def squeeze_excitation(
    x: Float[Tensor, "b n d"], weights: Weights, *, mask: Bool[Tensor, "b n m"], prefix: str = ""
) -> Float[Tensor, "b n d"]:
    """y_n = s * x_n, s = sigmoid(W relu(V mean(x)))."""
    flat = {name: w.flatten(1) if w.ndim == 4 else w for name, w in weights.items()}
    hidden = linear(mean(x, mask), flat, f"{prefix}reduce").clamp(min=0)
    scale = torch.sigmoid(linear(hidden, flat, f"{prefix}expand"))
    return torch.stack([scale * x[:, n] for n in range(x.shape[1])], 1)


def film(
    x: Float[Tensor, "b n d"], context: Float[Tensor, "b m e"], weights: Weights, *, mask: Bool[Tensor, "b n m"]
) -> Float[Tensor, "b n d"]:
    """y_n = (1 + s) * x_n + t, s and t linear in the mean of the context."""
    summary = mean(context, mask)
    scale, shift = linear(summary, weights, "scale"), linear(summary, weights, "shift")
    return torch.stack([(1 + scale) * x[:, n] + shift for n in range(x.shape[1])], 1)


def bam(x: Float[Tensor, "b n d"], weights: Weights, *, size: Sequence[int], dilation: int) -> Float[Tensor, "b n d"]:
    """y_n = x_n + sigmoid(s + z_n) * x_n."""
    hidden = linear(x.mean(1), weights, "channel.0").clamp(min=0)
    channel = batch_norm(linear(hidden, weights, "channel.2"), weights, "channel_norm")
    z = x
    for i in (0, 2, 4, 6):
        z = convolution(z, weights, f"spatial.{i}", size, dilation)
        z = z if i == 6 else z.clamp(min=0)
    spatial = batch_norm(z, weights, "spatial_norm")
    return torch.stack([x[:, n] + torch.sigmoid(channel + spatial[:, n]) * x[:, n] for n in range(x.shape[1])], 1)


def cbam(x: Float[Tensor, "b n d"], weights: Weights, *, size: Sequence[int]) -> Float[Tensor, "b n d"]:
    """y_n = z_n * (s * x_n)."""
    scores = torch.zeros_like(x[:, 0])
    for summary in (x.mean(1), x.amax(1)):
        scores = scores + linear(linear(summary, weights, "channel.0").clamp(min=0), weights, "channel.2")
    x = x * torch.sigmoid(scores)[:, None]
    summaries = torch.stack([x.mean(2), x.amax(2)], 2)
    spatial = batch_norm(convolution(summaries, weights, "spatial", size), weights, "spatial_norm")
    return torch.stack([torch.sigmoid(spatial[:, n]) * x[:, n] for n in range(x.shape[1])], 1)


def mean(x: Float[Tensor, "b m d"], mask: Bool[Tensor, "b n m"]) -> Float[Tensor, "b d"]:
    """Over the rows that may be used; nothing has a mean of zero."""
    examples = []
    for b in range(len(x)):
        used = [x[b, m] for m in range(x.shape[1]) if bool(mask[b, 0, m])]
        examples.append(torch.stack(used).sum(0) / len(used) if used else torch.zeros_like(x[b, 0]))
    return torch.stack(examples)


def batch_norm(x: Float[Tensor, "... d"], weights: Weights, name: str) -> Float[Tensor, "... d"]:
    centred = x - weights[f"{name}.running_mean"]
    return (
        centred / (weights[f"{name}.running_var"] + 1e-5) ** 0.5 * weights[f"{name}.weight"] + weights[f"{name}.bias"]
    )


def convolution(
    x: Float[Tensor, "b n d"], weights: Weights, name: str, size: Sequence[int], dilation: int = 1
) -> Float[Tensor, "b n o"]:
    """Every position reads its window, which is odd; around the map there are zeros."""
    kernel, (height, width) = weights[f"{name}.weight"], size
    windows = list(itertools.product(range(kernel.shape[2]), range(kernel.shape[3])))
    rows = []
    for i, j in positions(size):
        y = x.new_zeros(len(x), kernel.shape[0])
        for down, right in windows:
            row = i + dilation * (down - kernel.shape[2] // 2)
            column = j + dilation * (right - kernel.shape[3] // 2)
            if 0 <= row < height and 0 <= column < width:
                y = y + torch.einsum("bd,od->bo", x[:, row * width + column], kernel[:, :, down, right])
        rows.append(y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y)
    return torch.stack(rows, 1)
