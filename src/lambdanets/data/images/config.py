"""The section `data.` of tasks on images."""

from dataclasses import dataclass
from typing import Literal

from lambdanets.data.config import DataConfig

Crop = Literal["none", "padded", "resized"]


@dataclass(frozen=True, kw_only=True)
class ImageDataConfig(DataConfig):
    """The source of images, their normalisation and augmentation."""

    source: str = "digits"  # one of `lambdanets.data.images.sources.SOURCES`
    image_size: int | None = None  # the network's by default
    mean: tuple[float, ...] | None = None  # of each channel, from 0 to 1, or one value for all; 0.5 by default
    std: tuple[float, ...] | None = None
    crop: Crop = "none"  # padded: shift by up to `padding` pixels; resized: RandomResizedCrop
    padding: int = 4
    scale: tuple[float, float] = (0.08, 1.0)  # area of a resized crop, as a fraction of the image
    flip: float = 0.0  # probability of a horizontal flip
    randaugment: int = 0  # magnitude; 0 for none
    randaugment_layers: int = 2
    mixup: float = 0.0  # alpha; 0 for none
    cutmix: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least_one("image_size", "randaugment_layers")
        self.not_negative("padding", "randaugment", "mixup", "cutmix")
        self.fractions("flip")
        if self.std is not None and not all(0 < one < float("inf") for one in self.std):
            raise ValueError(f"data.std must be numbers above 0, got {self.std}")
        if not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise ValueError(f"data.scale must be two fractions in ascending order, got {self.scale}")
        if self.crop not in ("none", "padded", "resized"):
            raise ValueError(f"data.crop must be none, padded or resized, got {self.crop}")
        if self.randaugment > 30:
            raise ValueError(f"data.randaugment must be from 0 to 30, got {self.randaugment}")
