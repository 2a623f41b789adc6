"""What a run reads: the section `data.` of its configuration."""

from dataclasses import dataclass
from typing import Literal

Crop = Literal["none", "padded", "resized"]


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Where images come from, how many go at once, and how those of training are changed."""

    source: str = "digits"  # one of `lambdanets.data.sources.SOURCES`
    root: str | None = None  # the folder, file or shards; each source says what it expects
    name: str | None = None  # of torchvision's class or of Hugging Face's data set
    download: bool = False  # let torchvision fetch what is missing
    samples: int | None = None  # training images in an epoch of a stream that does not know
    holdout: float = 0.1  # share of the training images to validate with, where there are no others
    limit: int | None = None  # the first so many training images only
    batch_size: int = 128  # images in a step of all devices together
    workers: int = 2  # processes that load images; 0 for none
    image_size: int | None = None  # that of the network by default
    mean: tuple[float, ...] | None = None  # of each channel, from 0 to 1, or one for all; half by default
    std: tuple[float, ...] | None = None
    crop: Crop = "none"  # of training images: moved by `padding` pixels, or a random part resized
    padding: int = 4
    scale: tuple[float, float] = (0.08, 1.0)  # share of the image that a random part covers
    flip: float = 0.0  # probability of a horizontal flip
    randaugment: int = 0  # magnitude; 0 for none
    randaugment_layers: int = 2
    mixup: float = 0.0  # alpha; 0 for none
    cutmix: float = 0.0

    def __post_init__(self) -> None:
        for field in ("batch_size", "samples", "limit", "image_size", "randaugment_layers"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise ValueError(f"data.{field} must be at least 1, got {value}")
        for field in ("workers", "padding", "randaugment", "mixup", "cutmix"):
            if getattr(self, field) < 0:
                raise ValueError(f"data.{field} must not be negative, got {getattr(self, field)}")
        for field in ("flip", "holdout"):
            if not 0 <= getattr(self, field) <= 1:
                raise ValueError(f"data.{field} must be from 0 to 1, got {getattr(self, field)}")
        if self.std is not None and not all(0 < one < float("inf") for one in self.std):
            raise ValueError(f"data.std must be numbers above 0, got {self.std}")
        if not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise ValueError(f"data.scale must be two shares in ascending order, got {self.scale}")
        if self.crop not in ("none", "padded", "resized"):
            raise ValueError(f"data.crop must be none, padded or resized, got {self.crop}")
        if not 0 <= self.randaugment <= 30:
            raise ValueError(f"data.randaugment must be from 0 to 30, got {self.randaugment}")
