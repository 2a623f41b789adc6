"""Vector self-attention (Zhao et al. 2020): weights that differ between channels, made by a small network.

    pairwise    A[:, o, n] = softargmax_o(W relu(V [q_n - k_(n + o), p_n - p_(n + o)] + c) + d)
    patchwise   A[:, :, n] = W relu(V [q_n, k_(n + o) for every o] + c) + d

The hidden layer is linear in queries, keys and places before its rectifier, so its parts are computed once for each
position, not for each pair: of the pairwise kind a sum of three is left, the patchwise kind has a convolution.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor

from lambdanets.ops.attention.neighbours import around
from lambdanets.ops.pairs import recomputed
from lambdanets.ops.plans.convolution import can_pad_in_training


def pairwise_scores(
    of_q: Float[Tensor, "b l i j"],
    of_keys: Float[Tensor, "b l i j"],
    of_offsets: Float[Tensor, "l r s"],
    weight: Float[Tensor, "g l"],
    bias: Float[Tensor, "g"],
) -> Float[Tensor, "b g r s i j"]:
    """W relu(of_q_n - of_keys_(n + o) + of_offsets_o) + d for all pairs.

    One row of the window is evaluated at a time, and again in the backward pass: autograd keeps no hidden layer.
    """
    _, r, s = of_offsets.shape
    i = of_q.shape[2]
    padded = F.pad(of_keys, (0, 0, r // 2, r // 2))

    def one_row(keys: Float[Tensor, "b l i j"], offsets: Float[Tensor, "l s"]) -> Float[Tensor, "b g s i j"]:
        near = around(keys, (1, s)).squeeze(2)
        hidden = (of_q[:, :, None] - near + offsets[..., None, None]).relu()
        scores = torch.einsum("gl,blsij->bgsij", weight, hidden)
        return scores + bias.to(scores.dtype)[:, None, None, None]  # autocast leaves it in float32

    rows = [recomputed(one_row, padded[:, :, p : p + i], of_offsets[:, p]) for p in range(r)]
    return torch.stack(rows, 2)


def patchwise_weights(
    q: Float[Tensor, "b k i j"],
    keys: Float[Tensor, "b k i j"],
    of_q: Float[Tensor, "l k"],
    of_keys: Float[Tensor, "l k r s"],
    offset: Float[Tensor, "l"],
    weight: Float[Tensor, "g r s l"],
    bias: Float[Tensor, "g r s"],
) -> Float[Tensor, "b g r s i j"]:
    """W relu(of_q q_n + sum_o of_keys_o k_(n + o) + c) + d; keys outside of the map are zeros."""
    r, s = of_keys.shape[2:]
    padding = (r // 2, s // 2)
    if not can_pad_in_training((r, s), (1, 1), keys.shape[2:]):
        keys, padding = F.pad(keys, (s // 2, s // 2, r // 2, r // 2)), (0, 0)
    hidden = F.conv2d(keys, of_keys, offset, padding=padding) + F.conv2d(q, of_q[..., None, None])
    maps = F.conv2d(hidden.relu(), weight.flatten(0, 2)[..., None, None], bias.flatten())
    return maps.reshape(maps.shape[0], *bias.shape, *maps.shape[2:])
