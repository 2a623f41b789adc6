"""What a lambda layer computes on the way, by name."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lambdanets.nn.lambda_inputs import TermInputs
from lambdanets.ops.content import content_lambda
from lambdanets.ops.keys import KeyNorm, normalise_keys
from lambdanets.ops.masks import drop_unusable
from lambdanets.ops.pairs import position_lambda
from lambdanets.ops.precision import widen, without_autocast


@dataclass(frozen=True, eq=False)
class LambdaIntermediates:
    """The named intermediates of one forward pass; those of a term that the layer does not have are None.

    `keys` (normalised) and `content_lambda` have an axis of the chosen positions a when every query normalises its
    keys over a context of its own (a causal layer, or a mask that differs between queries), and none when one lambda
    serves all. Everything is on tokens in raster order, but `output`, which is what forward returns.
    """

    at: Int[Tensor, "a"]
    queries: Float[Tensor, "b n h k"]
    keys: Float[Tensor, "b m k u"] | Float[Tensor, "b a m k u"] | None
    values: Float[Tensor, "b m v u"]
    content_lambda: Float[Tensor, "b k v"] | Float[Tensor, "b a k v"] | None
    position_lambda: Float[Tensor, "b a k v"] | None
    content_output: Float[Tensor, "b n h v"] | None
    position_output: Float[Tensor, "b n h v"] | None
    output: Float[Tensor, "b ..."]


def gather_intermediates(
    inputs: TermInputs,
    at: Sequence[int] | Int[Tensor, "a"] | None,
    *,
    key_norm: KeyNorm,
    table: Float[Tensor, "p k u"] | None,
    position_bias: Float[Tensor, "k"] | None,
    content_output: Float[Tensor, "b n h v"] | None,
    position_output: Float[Tensor, "b n h v"] | None,
    output: Float[Tensor, "b ..."],
) -> LambdaIntermediates:
    """The lambdas at the chosen positions, beside what forward has computed."""
    q, keys, values, field, _ = inputs
    positions = chosen(at, q.shape[1], q.device)
    pairs = field.pairs(positions)
    values = drop_unusable(values, field.usable)
    content = position = None
    with without_autocast(q.device):
        if keys is not None and pairs is None:
            keys = normalise_keys(drop_unusable(keys, field.usable), key_norm, field.allowed.rows)
            content = content_lambda(keys, values)
        elif keys is not None:
            keys = normalise_keys(keys[:, None], key_norm, pairs)
            content = torch.einsum("bamku,bmvu->bakv", keys, values)
        if table is not None:
            position = position_lambda(values, widen(table), field.geometry, positions, pairs)
        if position is not None and position_bias is not None:
            position = position + widen(position_bias)[:, None]
    return LambdaIntermediates(positions, q, keys, values, content, position, content_output, position_output, output)


def chosen(at: Sequence[int] | Int[Tensor, "a"] | None, n: int, device: torch.device) -> Int[Tensor, "a"]:
    """The positions asked for, as a tensor."""
    if at is None:
        return torch.arange(n, device=device)
    positions = torch.as_tensor(at, device=device).flatten()
    if positions.numel() and (positions.is_floating_point() or positions.dtype == torch.bool):
        raise ValueError(f"at must hold positions as integers, got {positions.dtype}")
    positions = positions.long()
    if positions.numel() and not 0 <= int(positions.min()) <= int(positions.max()) < n:
        raise ValueError(f"at must hold positions from 0 to n - 1 = {n - 1}, got {positions.tolist()}")
    return positions
