"""Batch norm of maps (b, c, i, j) with a residual and a rectifier behind it, in one pass over each.

y = max(0, (x - mean) weight / sqrt(var + eps) + bias + residual)

In memory the channels are last: the kernels see rows of them. That is done in here, for a gradient that is a view of
another tensor is added out of place by autograd, which takes the memory and most of the time of one pass more.
"""

from typing import Any

import torch
from torch import Tensor

from lambdanets.kernels.library import call, threads
from lambdanets.kernels.operators.batch_norm import statistics
from lambdanets.kernels.operators.definitions import definitions, differentiate, gradients_of

# max(0, (x - mean) scale + shift + (residual - residual_mean) residual_scale), for inference: it has no gradient.
definitions.define(
    "rectify(Tensor x, Tensor mean, Tensor scale, Tensor shift, Tensor? residual, Tensor? residual_mean,"
    " Tensor? residual_scale) -> Tensor"
)
definitions.define(
    "rectified_norm(Tensor x, Tensor weight, Tensor bias, Tensor? residual, float eps) -> (Tensor, Tensor, Tensor)"
)
definitions.define(
    "rectified_norm_backward(Tensor dy, Tensor x, Tensor weight, Tensor y, Tensor mean, Tensor var, float eps,"
    " bool has_residual) -> (Tensor, Tensor, Tensor, Tensor)"
)


@torch.library.impl(definitions, "rectify", "CPU")
def apply(
    x: Tensor,
    mean: Tensor,
    scale: Tensor,
    shift: Tensor,
    residual: Tensor | None,
    residual_mean: Tensor | None,
    residual_scale: Tensor | None,
) -> Tensor:
    """`rectify` itself."""
    y = like(x)
    columns = [None if t is None else t.contiguous() for t in (mean, scale, shift, residual_mean, residual_scale)]
    if any(t is not None and t.shape != x.shape[1:2] for t in columns):
        wanted, found = tuple(x.shape[1:2]), [None if t is None else tuple(t.shape) for t in columns]
        raise ValueError(f"lambdanets: means, scales and shift must be {wanted}, got {found}")
    if (residual_mean is None) != (residual_scale is None):
        raise ValueError("lambdanets: a residual has both a mean and a scale or neither")
    if residual is not None and residual.shape != x.shape:
        raise ValueError(f"lambdanets: residual must be {tuple(x.shape)} here, got {tuple(residual.shape)}")
    more = None if residual is None else last(residual)
    sizes = (x.numel() // x.shape[1], x.shape[1], threads())
    call("norm_rectified", x.dtype, sizes, last(x), *columns[:3], more, *columns[3:], y)
    return y


@torch.library.impl(definitions, "rectified_norm", "CPU")
def _forward(
    x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    mean, var = statistics(last(x))
    return apply(x, mean, weight * torch.rsqrt(var + eps), bias, residual, None, None), mean, var


@torch.library.impl(definitions, "rectified_norm_backward", "CPU")
def gradients(
    dy: Tensor, x: Tensor, weight: Tensor, y: Tensor, mean: Tensor, var: Tensor, eps: float, has_residual: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of x, weight, bias and the residual."""
    if not dy.shape == y.shape == x.shape or not weight.shape == mean.shape == var.shape == x.shape[1:2]:
        found = [tuple(t.shape) for t in (dy, y, weight, mean, var)]
        raise ValueError(f"lambdanets: dy, y, weight, mean and var must fit x {tuple(x.shape)}, got {found}")
    dx, dweight, dbias = like(x), torch.empty_like(mean), torch.empty_like(mean)
    dresidual = like(x) if has_residual else x.new_empty(0)
    g = dresidual if has_residual else dx
    channels = x.shape[1]
    sizes = (x.numel() // channels, channels, channels, channels, threads(), eps)
    seen = (last(x), weight.contiguous(), mean, var, last(y), last(dy))
    call("norm_backward", x.dtype, sizes, *seen, g, dx, dweight, dbias)
    return dx, dweight, dbias, dresidual


def last(x: Tensor) -> Tensor:
    """Maps whose channels are last in memory."""
    return x.contiguous(memory_format=torch.channels_last)


def like(x: Tensor) -> Tensor:
    """Maps of that size whose channels are last."""
    return torch.empty_like(x, memory_format=torch.channels_last)


def _fake(
    x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    return like(x), x.new_empty(x.shape[1]), x.new_empty(x.shape[1])


def _fake_gradients(
    dy: Tensor, x: Tensor, weight: Tensor, y: Tensor, mean: Tensor, var: Tensor, eps: float, has_residual: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dresidual = like(x) if has_residual else x.new_empty(0)
    return like(x), torch.empty_like(mean), torch.empty_like(mean), dresidual


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    x, weight, _, residual, ctx.eps = inputs
    ctx.has_residual = residual is not None
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(x, weight, *output)


def _backward(ctx: Any, dy: Tensor, *_: Any) -> tuple[Any, ...]:
    saved = ctx.saved_tensors
    if torch.is_grad_enabled():  # for second derivatives, which torch's own norm has
        x, weight, y, *_ = saved
        g = dy * (y > 0)
        dx, dweight, dbias, dresidual = *norm_gradients(g, x, weight, ctx.eps), g
    else:
        found = torch.ops.lambdanets.rectified_norm_backward(dy, *saved, ctx.eps, ctx.has_residual)
        dx, dweight, dbias, dresidual = found
    return dx, dweight, dbias, dresidual if ctx.has_residual else None, None


def norm_gradients(g: Tensor, x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """Of x, weight and bias, from the gradient g of their norm, by operators that have gradients themselves."""

    def normed(x: Tensor, weight: Tensor) -> Tensor:
        return torch.nn.functional.batch_norm(x, None, None, weight, None, training=True, eps=eps)

    dx, dweight = gradients_of(normed, (x, weight), g)
    return dx, dweight, g.sum((0, 2, 3))


torch.library.register_fake("lambdanets::rectify", lambda x, *_: like(x), lib=definitions)
torch.library.register_fake("lambdanets::rectified_norm", _fake, lib=definitions)
torch.library.register_fake("lambdanets::rectified_norm_backward", _fake_gradients, lib=definitions)
differentiate("rectified_norm", _backward, _remember)
rectify = torch.ops.lambdanets.rectify.default
rectified_norm = torch.ops.lambdanets.rectified_norm.default
