"""Batch norm, a residual and a rectifier behind a convolution, in one pass over the map where the kernels can.

torch takes one for each of them, and on a CPU each takes about as long as the memory does.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.kernels import unsupported
from lambdanets.kernels.operators import rectified_norm, rectified_norms, rectify
from lambdanets.nn.hooks import has_hooks
from lambdanets.nn.norms import keep_statistics


class Rectified(nn.Sequential):
    """Layers of which the last two are a batch norm and a rectifier."""

    def forward(self, x: Float[Tensor, "b c i j"]) -> Float[Tensor, "b d s t"]:
        *before, norm, relu = self
        for layer in before:
            x = layer(x)
        y = norm_then_relu(norm, x) if type(relu) is nn.ReLU and not has_hooks(relu) else None
        return relu(norm(x)) if y is None else y


def norm_then_relu(
    norm: nn.Module, x: Float[Tensor, "b c i j"], residual: Float[Tensor, "b c i j"] | None = None
) -> Float[Tensor, "b c i j"] | None:
    """relu(norm(x) + residual), or None if that takes more than the kernels can do."""
    if not can_serve(norm, x):
        return None
    if residual is not None and (residual.shape != x.shape or not can_serve(norm, residual)):
        return None
    assert isinstance(norm, nn.BatchNorm2d)
    y: Tensor | None = None
    rows = x.numel() // x.shape[1]
    if norm.training and rows > 1:
        y, mean, var = rectified_norm(x, norm.weight, norm.bias, residual, norm.eps)
        keep_statistics([norm], mean, var, rows)
    elif not norm.training and not needs_gradient(norm, x, residual):
        y = rectify(x, *mean_and_scale(norm), norm.bias, residual, None, None)
    return y


def norms_then_relu(
    norm: nn.Module,
    x: Float[Tensor, "b c i j"],
    other_norm: nn.Module,
    other: Float[Tensor, "b c i j"],
) -> Float[Tensor, "b c i j"] | None:
    """relu(norm(x) + other_norm(other)), or None if that takes more than the kernels can do."""
    if not can_serve(norm, x) or not can_serve(other_norm, other):
        return None
    if x.shape != other.shape or norm.training != other_norm.training:
        return None
    assert isinstance(norm, nn.BatchNorm2d)
    assert isinstance(other_norm, nn.BatchNorm2d)
    y: Tensor | None = None
    rows = x.numel() // x.shape[1]
    if norm.training and rows > 1:
        its, others = (x, norm.weight, norm.bias, norm.eps), (other, other_norm.weight, other_norm.bias, other_norm.eps)
        y, mean, var, other_mean, other_var = rectified_norms(*its, *others)
        keep_statistics([norm], mean, var, rows)
        keep_statistics([other_norm], other_mean, other_var, rows)
    elif not norm.training and not needs_gradient(norm, x) and not needs_gradient(other_norm, other):
        y = rectify(x, *mean_and_scale(norm), norm.bias + other_norm.bias, other, *mean_and_scale(other_norm))
    return y


def mean_and_scale(norm: nn.BatchNorm2d) -> tuple[Float[Tensor, "c"], Float[Tensor, "c"]]:
    """Of running statistics."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    return norm.running_mean, norm.weight * torch.rsqrt(norm.running_var + norm.eps)


def can_serve(norm: nn.Module, x: Float[Tensor, "b c i j"]) -> bool:
    """A plain batch norm, and a map that lies in memory as rows of channels, both in a precision of the kernels."""
    if not isinstance(x, Tensor) or x.ndim != 4:  # a tracer hands over something else
        return False
    if type(norm) is not nn.BatchNorm2d or has_hooks(norm) or not norm.track_running_stats:
        return False
    if not norm.affine or norm.bias is None or norm.num_features != x.shape[1]:
        return False
    if torch.compiler.is_compiling():  # compilers fuse these themselves
        return False
    if x.dtype != norm.weight.dtype or unsupported(x.device, x.dtype) is not None:
        return False
    return x.numel() > 0 and x.is_contiguous(memory_format=torch.channels_last)  # vmap could not be asked


def needs_gradient(norm: nn.Module, *tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(t.requires_grad for t in (*tensors, *norm.parameters()) if t is not None)
