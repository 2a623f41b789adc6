"""Batch norm in training of the columns of a matrix (rows, c), which may be some of a larger one.

y = (x - mean) weight / sqrt(var + eps) + bias
"""

from typing import Any

import torch
from torch import Tensor

from lambdanets.kernels.library import call, threads
from lambdanets.kernels.operators.definitions import definitions, differentiate, gradients_of, no_second_derivative

definitions.define("batch_norm(Tensor x, Tensor weight, Tensor bias, float eps) -> (Tensor, Tensor, Tensor)")
definitions.define(
    "batch_norm_backward(Tensor g, Tensor x, Tensor weight, Tensor mean, Tensor var, float eps)"
    " -> (Tensor, Tensor, Tensor)"
)


def statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of the columns, whose numbers must be neighbours.

    x may also be maps (b, c, i, j) in the format channels-last, which are rows of c numbers.
    """
    columns = x.shape[1]
    mean, var = x.new_empty(columns), x.new_empty(columns)
    rows, stride = (x.shape[0], x.stride(0)) if x.ndim == 2 else (x.numel() // columns, columns)
    call("norm_statistics", x.dtype, (rows, columns, stride, threads()), x, mean, var)
    return mean, var


def gradient_in_place(
    g: Tensor, x: Tensor, weight: Tensor, mean: Tensor, var: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Turn the gradient g of y into that of x; those of weight and bias are returned.

    Both are matrices, or both maps in the format channels-last.
    """
    columns = x.shape[1]
    dweight, dbias = torch.empty_like(mean), torch.empty_like(mean)
    rows, *strides = (x.shape[0], x.stride(0), g.stride(0)) if x.ndim == 2 else (x.numel() // columns, columns, columns)
    sizes = (rows, columns, *strides, threads(), eps)
    call("norm_backward", x.dtype, sizes, x, weight.contiguous(), mean, var, None, None, g, g, dweight, dbias)
    return dweight, dbias


def _rows(x: Tensor) -> Tensor:
    return x if x.stride(1) == 1 else x.contiguous()


@torch.library.impl(definitions, "batch_norm", "CPU")
def _forward(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    x = _rows(x)
    mean, var = statistics(x)
    return torch.addcmul(bias, x - mean, weight * torch.rsqrt(var + eps)), mean, var


@torch.library.impl(definitions, "batch_norm_backward", "CPU")
def _gradients(
    g: Tensor, x: Tensor, weight: Tensor, mean: Tensor, var: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    dx = g.clone(memory_format=torch.contiguous_format)
    return dx, *gradient_in_place(dx, _rows(x), weight, mean, var, eps)


def _fake(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape[1]), x.new_empty(x.shape[1])


def _fake_gradients(
    g: Tensor, x: Tensor, weight: Tensor, mean: Tensor, var: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape), torch.empty_like(mean), torch.empty_like(mean)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    x, weight, bias, ctx.eps = inputs
    _, mean, var = output
    ctx.mark_non_differentiable(mean, var)
    ctx.save_for_backward(x, weight, bias, mean, var)


def _backward(ctx: Any, g: Tensor, *_: Any) -> tuple[Any, ...]:
    x, weight, bias, mean, var = ctx.saved_tensors
    if torch.is_grad_enabled():
        return gradients_of(composition, (x, weight, bias, ctx.eps), g)
    return *torch.ops.lambdanets.batch_norm_backward(g, x, weight, mean, var, ctx.eps), None


def composition(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """The same in torch's own operators."""
    return torch.nn.functional.batch_norm(x, None, None, weight, bias, training=True, eps=eps)


torch.library.register_fake("lambdanets::batch_norm", _fake, lib=definitions)
torch.library.register_fake("lambdanets::batch_norm_backward", _fake_gradients, lib=definitions)
differentiate("batch_norm", _backward, _remember)
no_second_derivative("batch_norm_backward")

batch_norm = torch.ops.lambdanets.batch_norm.default
