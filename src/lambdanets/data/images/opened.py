"""Both splits of a source of labelled images."""

from typing import NamedTuple

from lambdanets.data.images.config import ImageDataConfig
from lambdanets.data.images.labelled import ImageSplit, ImageStream, labels_of
from lambdanets.data.images.sources import open_split
from lambdanets.data.splits import DataError


class Images(NamedTuple):
    """Training and validation images, with the same classes and channels."""

    train: ImageSplit | ImageStream
    val: ImageSplit | ImageStream

    @property
    def classes(self) -> tuple[str, ...]:
        return self.train.classes

    @property
    def channels(self) -> int:
        return self.train.channels

    @property
    def smallest_class(self) -> int | None:
        """The number of training images in the class that has the fewest; None if that is unknown."""
        labels = labels_of(self.train)
        return None if labels is None else int(labels.unique(return_counts=True)[1].min())


def open_images(config: ImageDataConfig) -> Images:
    """
    >>> digits = open_images(ImageDataConfig(source="digits"))
    >>> len(digits.train), len(digits.val), digits.channels, len(digits.classes)
    (1437, 360, 1, 10)
    """
    train, val = open_split(config, "train"), open_split(config, "val")
    if val.classes != train.classes:
        raise DataError(f"training has the classes {train.classes}, validation {val.classes}")
    return Images(train, val)
