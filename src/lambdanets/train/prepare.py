"""The first layer of every network that is trained here: from the bytes of images to numbers around zero."""

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn


class Prepare(nn.Module):
    """On the network's side, because bytes travel to a device four times as fast."""

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        memory_format: torch.memory_format = torch.contiguous_format,
    ) -> None:
        super().__init__()
        self.memory_format = memory_format
        # Part of the configuration, not of the weights.
        self.register_buffer("mean", torch.tensor(mean)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(std)[:, None, None], persistent=False)

    def forward(self, images: UInt8[Tensor, "b c i j"]) -> Float[Tensor, "b c i j"]:
        images = images.to(memory_format=self.memory_format)
        return (images.to(self.mean.dtype) / 255 - self.mean) / self.std
