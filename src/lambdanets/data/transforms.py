"""What happens to an image between its file and the network, all of it in bytes; the network's side normalises."""

from collections.abc import Callable

import torch
from jaxtyping import UInt8
from torch import Tensor

from lambdanets.data.config import DataConfig
from lambdanets.optional import import_torchvision

Transform = Callable[[UInt8[Tensor, "c i j"]], UInt8[Tensor, "c s s"]]

# The part of an image that is left when its border is cut off for evaluation: 224 of 256 pixels in ImageNet's habit.
CENTRE = 224 / 256


def for_training(config: DataConfig, size: int) -> Transform:
    """Random, from torch's generator alone."""
    v2 = import_torchvision("torchvision.transforms.v2")

    steps: list[Transform] = []
    if config.crop == "resized":
        steps.append(v2.RandomResizedCrop(size, scale=config.scale, antialias=True))
    else:
        steps.append(v2.Resize((size, size), antialias=True))
    if config.crop == "padded":
        steps.append(v2.RandomCrop(size, padding=config.padding))
    if config.flip:
        steps.append(v2.RandomHorizontalFlip(config.flip))
    if config.randaugment:
        layers, magnitude = config.randaugment_layers, config.randaugment
        steps.append(v2.RandAugment(layers, magnitude, interpolation=v2.InterpolationMode.BILINEAR))
    composed: Transform = v2.Compose(steps)
    return composed


def for_evaluation(config: DataConfig, size: int) -> Transform:
    """The middle of the image where training saw random parts of it, all of it otherwise."""
    v2 = import_torchvision("torchvision.transforms.v2")

    if config.crop != "resized":
        whole: Transform = v2.Resize((size, size), antialias=True)
        return whole
    middle: Transform = v2.Compose([v2.Resize(round(size / CENTRE), antialias=True), v2.CenterCrop(size)])
    return middle


def seeded(transform: Transform, image: UInt8[Tensor, "c i j"], *seed: int) -> UInt8[Tensor, "c s s"]:
    """The same change for the same numbers, whoever asks and however often; the caller's generator stays as it was."""
    before = torch.get_rng_state()
    try:
        torch.default_generator.manual_seed(mixed(*seed))  # a hundred times as fast as torch.random.fork_rng
        return transform(image)
    finally:
        torch.set_rng_state(before)


def mixed(*numbers: int) -> int:
    """One seed from several; neighbours give unlike ones.

    >>> mixed(0, 1, 2) == mixed(0, 1, 2), mixed(0, 1, 2) == mixed(0, 2, 1)
    (True, False)
    """
    seed = 0
    for number in numbers:  # the finaliser of splitmix64
        seed = (seed + number + 0x9E3779B97F4A7C15) % 2**64
        seed = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        seed = (seed ^ seed >> 27) * 0x94D049BB133111EB % 2**64
        seed ^= seed >> 31
    return seed
