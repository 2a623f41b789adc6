"""A whole layer in one operator of the kernels, where these can do all that it does.

What torch would do in a dozen steps between the projections and the output, each with a tensor of its own to write and
for autograd to keep, is done where the numbers are.
"""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.compat import is_transformed
from lambdanets.kernels import unavailable
from lambdanets.kernels.operators import COMPOSITIONS, infer, layer
from lambdanets.nn.norms import (
    as_scale_and_shift,
    batch_norms_in_training,
    check_batch,
    keep_statistics,
    weight_and_bias,
)
from lambdanets.nn.projections import Joint
from lambdanets.nn.receptive_field import ReceptiveField
from lambdanets.ops.content import content_lambda
from lambdanets.ops.geometry import Grid
from lambdanets.ops.keys import KeyNorm, normalise_keys
from lambdanets.ops.plans import Problem, choose
from lambdanets.ops.plans.native import Native, composed_term, window_of


def reads_norms() -> bool:
    """May norms with running statistics be left to the kernels, which apply them to what they read?

    They then have no gradients, and no compiler sees them.
    """
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    return unavailable() is None and not is_transformed()


def fused_layer(
    joint: Joint,
    table: Float[Tensor, "p k u"] | None,
    position_bias: Float[Tensor, "k"] | None,
    scene: ReceptiveField,
    *,
    h: int,
    key_norm: KeyNorm,
    plan: str | None,
    owner: str,
) -> Float[Tensor, "b n h v"] | None:
    """The output of queries, values and keys projected jointly; None if that takes more than the kernels can do."""
    x, grid = joint.projected, scene.geometry
    if len(joint.widths) < 3 or table is None or key_norm != "softmax":
        return None
    if scene.allowed.mask is not None or not isinstance(grid, Grid) or grid.causal:
        return None
    if table.dtype != x.dtype:  # under autocast the projections come in half precision
        return None
    k, u = table.shape[1:]
    b, n, v = *x.shape[:2], joint.widths[1] // u
    trains = torch.is_grad_enabled() and (x.requires_grad or table.requires_grad)
    problem = Problem(
        b, n, n, h, k, v, u, grid, pairs=False, per_example=False, trains=trains, device=x.device, dtype=x.dtype
    )
    chosen = choose(problem, plan)
    if not isinstance(chosen, Native):
        return None
    norms = [norm for norm in joint.norms if norm is not None and type(norm) is not nn.Identity]
    y: Tensor
    if norms and reads_norms():
        known = [as_scale_and_shift(norm, x) for norm in norms]
        if len(known) == 2 and known[0] is not None and known[1] is not None:
            table, window = window_of(grid, table, chosen.algorithm)
            scale, shift = (torch.cat(both) for both in zip(*known, strict=True))
            norm = torch.stack((torch.zeros_like(scale), scale, shift))
            y = infer(x, norm, table, position_bias, h, k, u, *window)
            return y
    together = batch_norms_in_training(norms, x) if norms else []
    if together is None or len(together) not in (0, 2):
        return None
    weight = bias = None
    eps = 0.0
    if together:
        check_batch(x, None, owner)
        weight, bias = weight_and_bias(together)
        eps = together[0].eps
    table, window = window_of(grid, table, chosen.algorithm)
    y, mean, var, *_ = layer(x, weight, bias, table, position_bias, h, k, u, eps, *window)
    if together:
        keep_statistics(together, mean, var, x.shape[0] * x.shape[1])
    return y


def composed_layer(
    projected: Float[Tensor, "b n c"],
    weight: Float[Tensor, "d"] | None,
    bias: Float[Tensor, "d"] | None,
    table: Float[Tensor, "p k u"],
    position_bias: Float[Tensor, "k"] | None,
    h: int,
    k: int,
    u: int,
    eps: float,
    *window: Any,
) -> Float[Tensor, "b n h v"]:
    """What the operator computes, in operations that torch can differentiate twice."""
    if weight is not None:
        normed, keys = projected.split([len(weight), k * u], 2)
        normed = F.batch_norm(normed.flatten(0, 1), None, None, weight, bias, training=True, eps=eps)
        projected = torch.cat([normed.unflatten(0, projected.shape[:2]), keys], 2)
    q, values, keys = projected.split([h * k, projected.shape[2] - h * k - k * u, k * u], 2)
    values, keys = values.unflatten(2, (-1, u)), keys.unflatten(2, (k, u))
    content = content_lambda(normalise_keys(keys), values)
    if position_bias is not None:
        content = content + position_bias[:, None]
    return composed_term(q.unflatten(2, (h, k)), values, table, content, *window)


COMPOSITIONS["layer"] = composed_layer
