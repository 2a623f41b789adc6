"""The norms of queries and values: over the batch, over the channels of one position, or none.

They run on tokens `(b, n, c)`. Rows that no query may use stay out of the batch statistics.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from lambdanets.ops.precision import widen

Norm = Literal["batch", "rms", "none"]


def make_norm(kind: Norm, channels: int) -> nn.Module:
    """The module that owns a norm's parameters and running statistics."""
    if kind == "batch":
        return nn.BatchNorm1d(channels)
    if kind == "rms":
        return nn.RMSNorm(channels, eps=1e-6)
    return nn.Identity()


def normalise(
    norm: nn.Module, x: Float[Tensor, "b n c"], counted: Bool[Tensor, "#b n"] | None, owner: str
) -> Float[Tensor, "b n c"]:
    """Apply `norm` to tokens; batch statistics are taken over the `counted` rows, all of them if None."""
    y: Tensor
    for parameter in norm.parameters():
        x = x.to(parameter.dtype)  # autocast hands over half precision, the norm has its own
    if not isinstance(norm, _BatchNorm):
        y = norm(x)
        return y
    if x.shape[0] * x.shape[1] == 0:  # no rows, no statistics; the parameters stay in the graph
        return scaled(norm, x)
    if norm.training:
        check_batch(x, counted, owner)
    if norm.training and counted is not None:
        if isinstance(norm, nn.SyncBatchNorm):
            raise ValueError(f"{owner}: SyncBatchNorm cannot leave rows out; train without the mask or unconverted")
        return masked_batch_norm(norm, x, counted.expand(x.shape[:2])[..., None])
    # As rows of a matrix: on maps, torch 2.13's batch norm has a wrong backward on CPU for a single example whose
    # gradient arrives transposed.
    y = norm(x.flatten(0, 1)).unflatten(0, x.shape[:2])
    return y


def check_batch(x: Float[Tensor, "b n c"], counted: Bool[Tensor, "#b n"] | None, owner: str) -> None:
    """One value has no variance; torch raises on it, and so does this, naming the layer."""
    values = x.shape[0] * x.shape[1]
    if counted is not None and not torch.compiler.is_compiling() and x.device.type == "cpu":
        # On other devices the count would wait for them.
        values = int(counted.expand(x.shape[:2]).sum())
    if values == 1:
        raise ValueError(
            f"{owner}: batch norm needs more than one value per channel when training, got b={x.shape[0]}, "
            f"{x.shape[1]} position(s){'' if counted is None else f', {values} of them usable'}; "
            f'use a larger batch or map, eval mode, or norm="rms"'
        )


def masked_batch_norm(
    norm: _BatchNorm, x: Float[Tensor, "b n c"], counted: Bool[Tensor, "b n 1"]
) -> Float[Tensor, "b n c"]:
    """Batch norm in training whose statistics see only the counted rows; with none of them it changes no statistics."""
    x = widen(x)
    count = counted.sum()
    mean = torch.where(counted, x, 0.0).sum((0, 1)) / count.clamp(min=1)
    var = torch.where(counted, x - mean, 0.0).square().sum((0, 1)) / count.clamp(min=1)
    if norm.track_running_stats:
        unbiased = var * (count / (count - 1).clamp(min=1))
        update_statistics(norm, mean.detach(), unbiased.detach(), count)
    return scaled(norm, (x - mean) * torch.rsqrt(var + norm.eps))


def scaled(norm: _BatchNorm, x: Float[Tensor, "b n c"]) -> Float[Tensor, "b n c"]:
    """The learned scale and shift of a batch norm, if it has them."""
    return x * norm.weight + norm.bias if norm.affine else x


def update_statistics(
    norm: _BatchNorm, mean: Float[Tensor, "c"], var: Float[Tensor, "c"], count: Int[Tensor, ""]
) -> None:
    """Move the running statistics towards those of a batch, unless that has counted nothing."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    some = count > 0
    norm.num_batches_tracked.add_(some)
    momentum = 1.0 / norm.num_batches_tracked.clamp(min=1) if norm.momentum is None else norm.momentum
    share = momentum * some.to(norm.running_mean.dtype)
    norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), share)
    norm.running_var.lerp_(var.to(norm.running_var.dtype), share)


@contextmanager
def frozen_statistics(module: nn.Module) -> Iterator[None]:
    """Inside, batch norms still use the statistics of the batch while training, but keep none of them."""
    norms = [m for m in module.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True
