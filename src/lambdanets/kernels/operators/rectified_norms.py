"""The sum of two batch norms of maps (b, c, i, j) with a rectifier behind it, as at the end of a block that projects.

y = max(0, norm(x) + norm(other)), each with its own weight, bias and statistics of the batch
"""

from typing import Any

import torch
from torch import Tensor

from lambdanets.kernels.operators.batch_norm import gradient_in_place, statistics
from lambdanets.kernels.operators.definitions import definitions, differentiate
from lambdanets.kernels.operators.rectified_norm import apply, gradients, last, like, norm_gradients

definitions.define(
    "rectified_norms(Tensor x, Tensor weight, Tensor bias, float eps,"
    " Tensor other, Tensor other_weight, Tensor other_bias, float other_eps)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
definitions.define(
    "rectified_norms_backward(Tensor dy, Tensor y, Tensor x, Tensor weight, Tensor mean, Tensor var, float eps,"
    " Tensor other, Tensor other_weight, Tensor other_mean, Tensor other_var, float other_eps)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)


@torch.library.impl(definitions, "rectified_norms", "CPU")
def _forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    other: Tensor,
    other_weight: Tensor,
    other_bias: Tensor,
    other_eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    mean, var = statistics(last(x))
    other_mean, other_var = statistics(last(other))
    scale, other_scale = weight * torch.rsqrt(var + eps), other_weight * torch.rsqrt(other_var + other_eps)
    return apply(x, mean, scale, bias + other_bias, other, other_mean, other_scale), mean, var, other_mean, other_var


@torch.library.impl(definitions, "rectified_norms_backward", "CPU")
def _gradients(
    dy: Tensor,
    y: Tensor,
    x: Tensor,
    weight: Tensor,
    mean: Tensor,
    var: Tensor,
    eps: float,
    other: Tensor,
    other_weight: Tensor,
    other_mean: Tensor,
    other_var: Tensor,
    other_eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    if other.shape != x.shape or not other_weight.shape == other_mean.shape == other_var.shape == weight.shape:
        found = [tuple(t.shape) for t in (other, other_weight, other_mean, other_var)]
        raise ValueError(f"lambdanets: other and what belongs to it must fit x {tuple(x.shape)}, got {found}")
    dx, dweight, dbias, dother = gradients(dy, x, weight, y, mean, var, eps, has_residual=True)
    of_other = last(other), other_weight, other_mean, other_var, other_eps
    return dx, dweight, dbias, dother, *gradient_in_place(dother, *of_other)


def _fake(x: Tensor, weight: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    mean, var, other_mean, other_var = (torch.empty_like(weight) for _ in range(4))
    return like(x), mean, var, other_mean, other_var


def _fake_gradients(
    dy: Tensor, y: Tensor, x: Tensor, weight: Tensor, *_: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    dweight, dbias, dother_weight, dother_bias = (torch.empty_like(weight) for _ in range(4))
    return like(x), dweight, dbias, like(x), dother_weight, dother_bias


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight, _, ctx.eps, other, other_weight, _, ctx.other_eps = inputs
    y, *found = output
    ctx.mark_non_differentiable(*found)
    ctx.save_for_backward(y, x, weight, *found[:2], other, other_weight, *found[2:])


def _backward(ctx: Any, dy: Tensor, *_: Any) -> tuple[Any, ...]:
    y, x, weight, mean, var, other, other_weight, other_mean, other_var = ctx.saved_tensors
    if torch.is_grad_enabled():  # for second derivatives, which torch's own norm has
        g = dy * (y > 0)
        of_x = norm_gradients(g, x, weight, ctx.eps)
        return *of_x, None, *norm_gradients(g, other, other_weight, ctx.other_eps), None
    both = (x, weight, mean, var, ctx.eps, other, other_weight, other_mean, other_var, ctx.other_eps)
    found = torch.ops.lambdanets.rectified_norms_backward(dy, y, *both)
    return *found[:3], None, *found[3:], None


torch.library.register_fake("lambdanets::rectified_norms", _fake, lib=definitions)
torch.library.register_fake("lambdanets::rectified_norms_backward", _fake_gradients, lib=definitions)
differentiate("rectified_norms", _backward, _remember)
rectified_norms = torch.ops.lambdanets.rectified_norms.default
