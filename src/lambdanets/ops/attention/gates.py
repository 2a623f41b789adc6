"""What gates are made of: one summary of a whole context, and channels scaled by it.

    squeeze-and-excitation   y_n = s * x_n                  s and t from the mean over the context
    FiLM                     y_n = (1 + s) * x_n + t
    BAM                      y_n = (1 + sigmoid(s + z_n)) * x_n     z_n one number for each position
    CBAM                     y_n = s * z_n * x_n

As lambdas, s is diagonal and shared by all positions, z_n is a multiple of the identity.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lambdanets.ops.masks import drop_unusable
from lambdanets.ops.precision import in_full_precision


@in_full_precision
def pooled(x: Float[Tensor, "b m d"], rows: Bool[Tensor, "#b m"] | None = None) -> Float[Tensor, "b d"]:
    """The mean over the rows that may be used; zero if there are none.

    >>> pooled(torch.tensor([[[1.0], [3.0], [8.0]]]), torch.tensor([[True, True, False]]))
    tensor([[2.]])
    """
    if rows is None:
        return x.mean(1) if x.shape[1] else x.sum(1)
    return drop_unusable(x, rows).sum(1) / rows.sum(1, keepdim=True).clamp(min=1)


def modulate(
    x: Float[Tensor, "b *grid d"], scale: Float[Tensor, "b d"], shift: Float[Tensor, "b d"] | None = None
) -> Float[Tensor, "b *grid d"]:
    """Every position of an example times the same scale, plus the same shift."""
    shape = (x.shape[0], *(1,) * (x.ndim - 2), x.shape[-1])
    y = x * scale.reshape(shape)
    return y if shift is None else y + shift.reshape(shape)


def mean_and_largest(x: Float[Tensor, "b *grid d"]) -> Float[Tensor, "b *grid 2"]:
    """Of the channels at every position."""
    return torch.stack([x.mean(-1), x.amax(-1)], -1)
