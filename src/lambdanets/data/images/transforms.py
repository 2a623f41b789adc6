"""Transforms of images, all on bytes. Normalisation follows on the network's device."""

from collections.abc import Callable

from jaxtyping import UInt8
from torch import Tensor

from lambdanets.data.images.config import ImageDataConfig
from lambdanets.optional import import_torchvision

Transform = Callable[[UInt8[Tensor, "c i j"]], UInt8[Tensor, "c s s"]]

# The share of an image that a central crop keeps for evaluation: 224 of 256 pixels, as usual for ImageNet.
CENTRE = 224 / 256


def for_training(config: ImageDataConfig, size: int) -> Transform:
    """Random augmentation, from torch's default generator only."""
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


def for_evaluation(config: ImageDataConfig, size: int) -> Transform:
    """A central crop if training uses random resized crops, otherwise the whole image."""
    v2 = import_torchvision("torchvision.transforms.v2")

    if config.crop != "resized":
        whole: Transform = v2.Resize((size, size), antialias=True)
        return whole
    middle: Transform = v2.Compose([v2.Resize(round(size / CENTRE), antialias=True), v2.CenterCrop(size)])
    return middle
