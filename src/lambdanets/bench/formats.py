"""Memory formats of maps and weights."""

from typing import Literal

import torch
from torch import nn

Format = Literal["contiguous", "channels-last"]
MEMORY_FORMATS: dict[Format, torch.memory_format] = {
    "contiguous": torch.contiguous_format,
    "channels-last": torch.channels_last,
}


def convert(module: nn.Module, layout: Format) -> nn.Module:
    """Convert the weights with four axes to a memory format; nn.Module.to would refuse the five axes of a Conv3d."""
    for parameter in module.parameters():
        if parameter.ndim == 4:
            parameter.data = parameter.data.contiguous(memory_format=MEMORY_FORMATS[layout])
    return module
