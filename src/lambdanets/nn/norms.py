"""The norms of queries and values: over the batch, over the channels of one position, or none.

They run on tokens `(b, n, c)`. Rows that no query may use stay out of the batch statistics.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lambdanets.compat import BatchNorm, is_transformed
from lambdanets.kernels.operators import batch_norm
from lambdanets.nn.hooks import has_hooks
from lambdanets.ops.precision import is_autocast, widen

Norm = Literal["batch", "rms", "none"]


def make_norm(kind: Norm, channels: int) -> nn.Module:
    """The module that owns a norm's parameters and running statistics."""
    if kind == "batch":
        return nn.BatchNorm1d(channels)
    if kind == "rms":
        return nn.RMSNorm(channels, eps=1e-6)
    return nn.Identity()


def normalise(
    norm: nn.Module | None, x: Float[Tensor, "b n c"], counted: Bool[Tensor, "#b n"] | None, owner: str
) -> Float[Tensor, "b n c"]:
    """Apply `norm`, if any, to tokens; batch statistics are taken over the `counted` rows, all of them if None."""
    if norm is None:
        return x
    y: Tensor
    for parameter in norm.parameters():
        x = x.to(parameter.dtype)  # autocast hands over half precision, the norm has its own
    if not isinstance(norm, BatchNorm):
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
    # gradient arrives transposed. Contiguous, as it is slow on columns of a larger matrix.
    y = norm(x.flatten(0, 1).contiguous()).unflatten(0, x.shape[:2])
    return y


def as_scale_and_shift(
    norm: nn.Module, x: Float[Tensor, "b n d"]
) -> tuple[Float[Tensor, "c"], Float[Tensor, "c"]] | None:
    """What a norm does to each channel if that does not depend on the batch: times a scale, plus a shift.

    None for a norm that looks at its input, has hooks, or is in half precision, where the detour through
    the weights would round differently.
    """
    if not isinstance(norm, BatchNorm) or not is_plain(norm):
        return None
    if norm.training or norm.running_mean is None or norm.running_var is None:
        return None
    if x.dtype not in (torch.float32, torch.float64) or is_autocast(x.device):
        return None
    scale = torch.rsqrt(norm.running_var + norm.eps)
    scale = scale * norm.weight if norm.affine else scale
    shift = -norm.running_mean * scale
    return scale, shift if norm.bias is None else shift + norm.bias


class FusedNorms(NamedTuple):
    """Norms of neighbouring columns that the kernels can apply: none, or batch norm with either kind of statistics."""

    kind: Literal["none", "running", "batch"]
    eps: float = 0.0
    weights: tuple[Tensor, ...] = ()
    biases: tuple[Tensor, ...] = ()
    means: tuple[Tensor, ...] = ()  # running statistics
    variances: tuple[Tensor, ...] = ()

    def running(self) -> Float[Tensor, "3 c"]:
        """Mean, scale and shift of every column, from running statistics.

        In few operations: in small layers these take as long as the arithmetic. Nothing of it can be kept for the next
        call, as statistics may have been changed in between, unseen by version counters.
        """
        rows = torch.cat(self.weights + self.means + self.variances + self.biases).view(4, -1)
        weight, _, scale, _ = rows.unbind()
        scale.add_(self.eps).rsqrt_().mul_(weight)
        return rows[1:]


def fused_norms(norms: Sequence[nn.Module], dtype: torch.dtype) -> FusedNorms | None:
    """These norms as the kernels take them; None if they differ, were replaced or have hooks."""
    first = norms[0]
    kind, training = type(first), first.training
    if has_hooks(*norms) or any(type(norm) is not kind or norm.training is not training for norm in norms):
        return None
    if kind is nn.Identity:
        return FusedNorms("none")
    if kind is not nn.BatchNorm1d:
        return None
    eps: Any = first.eps
    found = []
    for norm in norms:
        found.append((norm.weight, norm.bias, norm.running_mean, norm.running_var))
        needed: Any = found[-1][:2] if training else found[-1]  # without running statistics, the batch's in eval mode
        if norm.eps != eps or any(t is None or t.dtype != dtype for t in needed):
            return None
    return FusedNorms("batch" if training else "running", eps, *zip(*found, strict=True))


def batch_norm_together(
    fused: FusedNorms, norms: Sequence[Any], x: Float[Tensor, "b n c"], owner: str
) -> Float[Tensor, "b n c"]:
    """Batch norms in training of neighbouring columns; torch's own would copy these out of a larger tensor."""
    check_batch(x, None, owner)
    y, mean, var = batch_norm(x.flatten(0, 1), torch.cat(fused.weights), torch.cat(fused.biases), fused.eps)
    keep_statistics(norms, mean, var, x.shape[0] * x.shape[1])
    return y.unflatten(0, x.shape[:2])  # type: ignore[no-any-return]


def keep_statistics(norms: Sequence[BatchNorm], mean: Float[Tensor, "c"], var: Float[Tensor, "c"], rows: int) -> None:
    """Move the running statistics of norms of neighbouring columns towards those of a batch of so many rows."""
    var = var * (rows / (rows - 1))
    first = 0
    for norm in norms:
        end = first + norm.num_features
        if norm.track_running_stats:
            update_statistics(norm, mean[first:end], var[first:end])
        first = end


def is_plain(norm: nn.Module) -> bool:
    """A batch norm as `make_norm` makes it, without hooks."""
    return type(norm) is nn.BatchNorm1d and not has_hooks(norm)


def check_batch(x: Float[Tensor, "b n c"], counted: Bool[Tensor, "#b n"] | None, owner: str) -> None:
    """One value has no variance; torch raises on it, and so does this, naming the layer."""
    values = x.shape[0] * x.shape[1]
    if counted is not None and x.device.type == "cpu" and not torch.compiler.is_compiling() and not is_transformed():
        # On other devices the count would wait for them, and vmap has no values to count.
        values = int(counted.expand(x.shape[:2]).sum())
    if values == 1:
        raise ValueError(
            f"{owner}: batch norm needs more than one value per channel when training, got b={x.shape[0]}, "
            f"{x.shape[1]} position(s){'' if counted is None else f', {values} of them usable'}; "
            f'use a larger batch or map, eval mode, or norm="rms"'
        )


def masked_batch_norm(
    norm: BatchNorm, x: Float[Tensor, "b n c"], counted: Bool[Tensor, "b n 1"]
) -> Float[Tensor, "b n c"]:
    """Batch norm in training whose statistics see only the counted rows; with none of them it changes no statistics."""
    x = widen(x)
    count = counted.sum()
    mean = torch.where(counted, x, 0.0).sum((0, 1)) / count.clamp(min=1)
    var = torch.where(counted, x - mean, 0.0).square().sum((0, 1)) / count.clamp(min=1)
    if norm.track_running_stats:
        # In the dtype of var: the quotient of two whole numbers would be a float32.
        unbiased = var * (count.to(var.dtype) / (count - 1).clamp(min=1))
        update_statistics(norm, mean.detach(), unbiased.detach(), count > 0)
    return scaled(norm, (x - mean) * torch.rsqrt(var + norm.eps))


def scaled(norm: BatchNorm, x: Float[Tensor, "b n c"]) -> Float[Tensor, "b n c"]:
    """The learned scale and shift of a batch norm, if it has them."""
    x = x if norm.weight is None else x * norm.weight
    return x if norm.bias is None else x + norm.bias


def update_statistics(
    norm: BatchNorm, mean: Float[Tensor, "c"], var: Float[Tensor, "c"], counted: bool | Bool[Tensor, ""] = True
) -> None:
    """Move the running statistics towards those of a batch, unless that has `counted` nothing."""
    running_mean, running_var, batches = norm.running_mean, norm.running_var, norm.num_batches_tracked
    assert running_mean is not None
    assert running_var is not None
    assert batches is not None
    dtype = running_mean.dtype
    batches.add_(counted)
    share = 1 / batches.clamp(min=1).to(dtype) if norm.momentum is None else norm.momentum
    share = counted.to(dtype) * share if isinstance(counted, Tensor) else share
    running_mean.lerp_(mean.to(dtype), share)
    running_var.lerp_(var.to(dtype), share)


@contextmanager
def frozen_statistics(module: nn.Module) -> Iterator[None]:
    """What batch norms keep of their batches is afterwards what it was before."""
    norms = [m for m in module.modules() if isinstance(m, BatchNorm) and m.track_running_stats]
    kept = [(buffer, buffer.clone()) for norm in norms for buffer in norm.buffers(recurse=False)]
    try:
        yield
    finally:
        for buffer, before in kept:
            buffer.data.copy_(before)  # of which a backward pass that saved the buffer does not hear
