"""Data ready for a run: both its splits, and what a network has to know about them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jaxtyping import UInt8
from torch import Tensor

from lambdanets.data.config import DataConfig
from lambdanets.data.images import decode
from lambdanets.data.loader import Loader, Place, Plan, Share
from lambdanets.data.shuffled import SplitLoader
from lambdanets.data.sources.subset import first, labels_of
from lambdanets.data.splits import DataError, Split, Stream
from lambdanets.data.streamed import StreamEvaluationLoader, StreamLoader, StreamSampleLoader
from lambdanets.data.transforms import for_evaluation, for_training


@dataclass(frozen=True)
class Opened:
    """The data of a configuration; loaders are made when the number of processes is known."""

    config: DataConfig
    train: Split | Stream
    val: Split | Stream

    @property
    def classes(self) -> tuple[str, ...]:
        return self.train.classes

    @property
    def channels(self) -> int:
        return self.train.channels

    @property
    def images(self) -> int | None:
        """How many there are in both splits, None if nobody knows."""
        train, val = self.train_images, size_of(self.val)
        return None if train is None or val is None else train + val

    @property
    def train_images(self) -> int | None:
        return size_of(self.train)

    @property
    def smallest_class(self) -> int | None:
        """The number of training images in the class that has the fewest, None if that is unknown."""
        labels = None if isinstance(self.train, Stream) else labels_of(self.train)
        return None if labels is None else int(labels.unique(return_counts=True)[1].min())

    def training_loader(
        self, size: int, *, seed: int = 0, share: Share | None = None, place: Callable[[], Place] = Place
    ) -> SplitLoader | StreamLoader:
        """Batches of changed images, `size` pixels wide and high."""
        plan = Plan(
            transform=for_training(self.config, size),
            image_size=size,
            batch_size=self.config.batch_size,
            seed=seed,
            workers=self.config.workers,
            share=share or Share(),
            place=place,
        )
        if isinstance(self.train, Stream):
            return StreamLoader(self.train, plan)
        return SplitLoader(self.train, plan, shuffle=True)

    def evaluation_loader(self, size: int, *, share: Share | None = None) -> Loader:
        """Batches of the images that are not trained with, in their order."""
        plan = Plan(
            transform=for_evaluation(self.config, size),
            image_size=size,
            batch_size=self.config.batch_size,
            workers=self.config.workers,
            share=share or Share(),
        )
        if isinstance(self.val, Stream):
            return StreamEvaluationLoader(self.val, plan)
        return SplitLoader(self.val, plan, shuffle=False)

    def sample_loader(self, size: int, *, images: int, batch_size: int) -> Loader:
        """Up to so many training images as evaluation sees them, the same in every pass, process and run."""
        plan = Plan(
            transform=for_evaluation(self.config, size),
            image_size=size,
            batch_size=batch_size,
            workers=self.config.workers,
        )
        if isinstance(self.train, Stream):
            return StreamSampleLoader(self.train, plan, images)
        return SplitLoader(first(self.train, images), plan, shuffle=False)


def size_of(images: Split | Stream) -> int | None:
    return images.length if isinstance(images, Stream) else len(images)


def open_data(config: DataConfig) -> Opened:
    """
    >>> digits = open_data(DataConfig(source="digits"))
    >>> len(digits.train), len(digits.val), digits.channels, len(digits.classes)
    (1437, 360, 1, 10)
    """
    from lambdanets.data.sources import open_split

    train, val = open_split(config, "train"), open_split(config, "val")
    if val.classes != train.classes:
        raise DataError(f"training has the classes {train.classes}, validation {val.classes}")
    return Opened(config, train, val)


def read_image(path: Path, config: DataConfig, size: int, channels: int) -> UInt8[Tensor, "c s s"]:
    """One image as evaluation sees it; `BadImageError` if it cannot be read."""
    return for_evaluation(config, size)(decode(path, str(path), channels))
