"""Normalisation on the network's device: copying bytes there is four times as fast as copying floats."""

import torch
from jaxtyping import Float, UInt8
from torch import Tensor


class Normalise:
    """(x / 255 - mean) / std for each channel, in the dtype and memory format of the network."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...], memory_format: torch.memory_format) -> None:
        self.mean, self.std, self.memory_format = mean, std, memory_format
        self.cached: dict[tuple[torch.device, torch.dtype], tuple[Tensor, Tensor]] = {}

    def __call__(self, images: UInt8[Tensor, "b c i j"], dtype: torch.dtype) -> Float[Tensor, "b c i j"]:
        mean, std = self.statistics(images.device, dtype)
        return (images.to(memory_format=self.memory_format).to(dtype) / 255 - mean) / std

    def statistics(self, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        if (device, dtype) not in self.cached:
            mean, std = (torch.tensor(numbers)[:, None, None].to(device, dtype) for numbers in (self.mean, self.std))
            self.cached[device, dtype] = mean, std
        return self.cached[device, dtype]


def per_channel(numbers: tuple[float, ...] | None, channels: int, name: str) -> tuple[float, ...]:
    """One number for each channel: a single number is repeated, and grey images use the mean of three.

    >>> per_channel(None, 3, "mean"), per_channel((0.2, 0.3, 0.4), 1, "mean")
    ((0.5, 0.5, 0.5), (0.3,))
    """
    numbers = numbers or (0.5,)
    if len(numbers) == 1:
        return numbers * channels
    if channels == 1 and len(numbers) == 3:
        return (round(sum(numbers) / 3, 6),)
    if len(numbers) != channels:
        raise ValueError(f"data.{name} needs one number for each of {channels} channels, or one for all, got {numbers}")
    return numbers
