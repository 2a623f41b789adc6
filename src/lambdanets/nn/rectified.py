"""Batch norm, a residual and a rectifier behind a convolution, in one pass over the map where the kernels can.

torch takes one for each of them, and on a CPU each takes about as long as the memory does.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.kernels import is_transformed, unavailable
from lambdanets.kernels.operators import rectified_norm, rectify
from lambdanets.nn.listeners import has_listeners
from lambdanets.nn.norms import keep_statistics


class Rectified(nn.Sequential):
    """Layers of which the last two are a batch norm and a rectifier."""

    def forward(self, x: Float[Tensor, "b c i j"]) -> Float[Tensor, "b d s t"]:
        *before, norm, relu = self
        for layer in before:
            x = layer(x)
        y = norm_then_relu(norm, x) if type(relu) is nn.ReLU and not has_listeners(relu) else None
        return relu(norm(x)) if y is None else y


def norm_then_relu(
    norm: nn.Module, x: Float[Tensor, "b c i j"], residual: Float[Tensor, "b c i j"] | None = None
) -> Float[Tensor, "b c i j"] | None:
    """relu(norm(x) + residual), or None if that takes more than the kernels can do."""
    if type(norm) is not nn.BatchNorm2d or has_listeners(norm) or not norm.affine or not norm.track_running_stats:
        return None
    if not all(is_row_of_channels(t, norm) for t in (x, residual) if t is not None):
        return None
    if unavailable() is not None or torch.compiler.is_compiling() or is_transformed():
        return None
    matrix, more = as_rows(x), None if residual is None else as_rows(residual)
    y: Tensor
    if norm.training and matrix.shape[0] > 1:
        y, mean, var = rectified_norm(matrix, norm.weight, norm.bias, more, norm.eps)
        keep_statistics([norm], mean, var, matrix.shape[0])
    elif not norm.training and not needs_gradient(norm, x, residual):
        assert norm.running_mean is not None
        assert norm.running_var is not None
        scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
        y = rectify(matrix, norm.running_mean, scale, norm.bias, more)
    else:
        return None
    return y.view(x.shape[0], *x.shape[2:], -1).movedim(-1, 1)


def is_row_of_channels(x: Float[Tensor, "b c i j"], norm: nn.BatchNorm2d) -> bool:
    """A map that lies in memory as rows of channels, in a precision that the kernels have and the norm has too."""
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64) or x.dtype != norm.weight.dtype:
        return False
    return x.ndim == 4 and x.numel() > 0 and x.is_contiguous(memory_format=torch.channels_last)


def as_rows(x: Float[Tensor, "b c i j"]) -> Float[Tensor, "_ c"]:
    return x.movedim(1, -1).flatten(0, 2)


def needs_gradient(norm: nn.BatchNorm2d, x: Tensor, residual: Tensor | None) -> bool:
    tensors = (x, residual, norm.weight, norm.bias)
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors if t is not None)
