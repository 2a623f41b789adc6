"""A 1x1 convolution as one product, where that is quicker."""

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.compat import is_transformed


def product(convolution: nn.Conv2d, x: Float[Tensor, "*b d i j"]) -> Float[Tensor, "*b e s t"] | None:
    """What a 1x1 convolution without groups answers, or None where torch's own is quicker, or has to be seen."""
    if not is_quicker(convolution, x):
        return None
    return F.linear(x.movedim(1, -1), convolution.weight.flatten(1), convolution.bias).movedim(-1, 1)


def is_quicker(convolution: nn.Conv2d, x: Float[Tensor, "*b d i j"]) -> bool:
    """With more channels than positions one product is faster than oneDNN's convolution by a sixth."""
    if not isinstance(x, Tensor) or torch.compiler.is_compiling():  # a tracer, or an export that shows convolutions
        return False
    if not convolution.kernel_size == convolution.stride == (1, 1) or x.device.type != "cpu" or is_transformed():
        return False
    if x.ndim != 4 or x.shape[1] != convolution.in_channels:  # what torch's convolution has the error for
        return False
    positions, channels = x.numel() // x.shape[1], min(convolution.in_channels, convolution.out_channels)
    return 0 < positions <= channels and x.is_contiguous(memory_format=torch.channels_last)
