"""Older layers as attention whose maps are fixed: one-hot, one head for each place that a value can come from.

    fully connected over positions   h = N heads, head i looks at position i alone, W_O holds the weight
    k x k convolution                h = k^2 heads, head i looks at the ith offset alone, W_O holds the kernel

Both are exact, not approximations. The values are the input itself, and there is one W_O, the same at all positions.
"""

import itertools

import torch
from jaxtyping import Float
from torch import Tensor

from lambdanets.ops.attention.attend import weighted


def fully_connected_as_attention(x: Float[Tensor, "b n d"], weight: Float[Tensor, "o n*d"]) -> Float[Tensor, "b n o"]:
    """Y_n = W_O [head_1, ..., head_N] = W vec(x) at every position n.

    Each head shows one position to all queries, so that the heads side by side are the whole input, vec(x). As W_O is
    one for all of them, every position has the whole answer; of a layer with outputs for each position, position n
    holds its own among the others.
    """
    n = x.shape[1]
    one_hot = torch.eye(n, dtype=x.dtype, device=x.device)[:, None].expand(n, n, n)  # h n m
    heads = weighted(one_hot.expand(x.shape[0], -1, -1, -1), x[:, :, None].expand(-1, -1, n, -1))
    return torch.einsum("bnc,oc->bno", heads.flatten(2), weight)


def convolution_as_attention(
    x: Float[Tensor, "b i height width"], kernel: Float[Tensor, "o i kh kw"]
) -> Float[Tensor, "b o height width"]:
    """The convolution that keeps the size of maps, with zeros around them: there a head has nothing to look at.

    The sides of the kernel are odd, so that it has a middle.
    """
    if kernel.shape[2] % 2 == 0 or kernel.shape[3] % 2 == 0:
        raise ValueError(
            "convolution_as_attention: the sides of kernel must be odd, so that it has a middle, "
            f"got kernel of shape {tuple(kernel.shape)}"
        )
    height, width = x.shape[2:]
    maps = offset_maps((height, width), (kernel.shape[2], kernel.shape[3])).to(x)
    values = x.flatten(2).transpose(1, 2)[:, :, None].expand(-1, -1, len(maps), -1)
    heads = weighted(maps.expand(x.shape[0], -1, -1, -1), values)  # b n h i
    y = torch.einsum("bnhi,oih->bon", heads, kernel.flatten(2))
    return y.reshape(*y.shape[:2], height, width)


def offset_maps(size: tuple[int, int], window: tuple[int, int]) -> Float[Tensor, "h n n"]:
    """For each offset of an odd window a map of attention that is one-hot there, or empty beyond the edge."""
    n = size[0] * size[1]
    maps = torch.zeros(window[0] * window[1], n, n)
    places = list(itertools.product(range(size[0]), range(size[1])))
    for head, (down, right) in enumerate(itertools.product(range(window[0]), range(window[1]))):
        for query, (i, j) in enumerate(places):
            row, column = i + down - window[0] // 2, j + right - window[1] // 2
            if 0 <= row < size[0] and 0 <= column < size[1]:
                maps[head, query, row * size[1] + column] = 1.0
    return maps
