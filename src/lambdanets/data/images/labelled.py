"""Images with class labels, which all sources of images return."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, NoReturn

import torch
from jaxtyping import Bool, Int64, UInt8
from torch import Tensor

from lambdanets.data.splits import BadItemError, DataError, Item, Split, Stream, Subset, fixed_shuffle

ReadImage = Callable[[], UInt8[Tensor, "c i j"]]


class LabelledImage(NamedTuple):
    """What an item of an image split reads."""

    image: UInt8[Tensor, "c i j"]
    label: int


class ImageSplit(Split):
    """Images in a fixed order, with the names of their classes."""

    classes: tuple[str, ...]
    channels: int


class ImageStream(Stream):
    classes: tuple[str, ...]
    channels: int


class Labelled(ImageSplit):
    """A split that knows all labels without reading images, so that a stratified part can be held out."""

    labels: Int64[Tensor, "n"]


class ImageSubset(Subset, ImageSplit):
    def __init__(self, split: ImageSplit, indices: Int64[Tensor, "n"]) -> None:
        super().__init__(split, indices)
        self.classes, self.channels = split.classes, split.channels


class Offer(NamedTuple):
    """Functions that open the splits of a source."""

    train: Callable[[], ImageSplit | ImageStream]
    val: Callable[[], ImageSplit | ImageStream] | None  # None: hold out training images, which must be `Labelled`


def labelled_item(name: str, label: int, read: ReadImage) -> Item:
    return Item(name, partial(read_labelled, label, read))


def read_labelled(label: int, read: ReadImage) -> LabelledImage:
    return LabelledImage(read(), label)


def checked_item(name: str, label: object, classes: int, read: ReadImage) -> Item:
    """An item whose label must be below `classes`.

    >>> checked_item("7.png", 3, 2, lambda: None).read()
    Traceback (most recent call last):
    lambdanets.data.splits.BadItemError: 7.png: its label is 3, but there are 2 classes
    """
    if isinstance(label, int) and 0 <= label < classes:
        return labelled_item(name, label, read)
    return bad_item(name, f"its label is {label}, but there are {classes} classes")


def bad_item(name: str, reason: str) -> Item:
    """An item that cannot be read, so that it is skipped and reported."""
    return Item(name, partial(refuse, name, reason))


def refuse(name: str, reason: str) -> NoReturn:
    raise BadItemError(name, reason)


def labels_of(split: Any) -> Int64[Tensor, "n"] | None:
    """The labels of all images; None if they are unknown without reading the images."""
    if isinstance(split, Labelled):
        return split.labels
    if not isinstance(split, Subset):
        return None
    labels = labels_of(split.split)
    return None if labels is None else labels[split.indices]


def without_held_out(split: Labelled, share: float) -> ImageSubset:
    return ImageSubset(split, (~held_out(split.labels, share)).nonzero().flatten())


def only_held_out(split: Labelled, share: float) -> ImageSubset:
    held = held_out(split.labels, share)
    if not held.any():
        raise DataError(
            f"data.holdout={share} of {len(held)} training images in {len(split.classes)} classes leaves no validation "
            "images: increase data.holdout, or add images"
        )
    return ImageSubset(split, held.nonzero().flatten())


def held_out(labels: Int64[Tensor, "n"], share: float) -> Bool[Tensor, "n"]:
    """Select a fixed fraction of every class; every class keeps at least one training image.

    >>> int(held_out(torch.tensor([0] * 10 + [1] * 20 + [2]), 0.2).sum())
    6
    """
    shuffled = fixed_shuffle(len(labels))
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    counts = labels.bincount()
    starts = counts.cumsum(0) - counts
    classes = labels[by_class]
    rank = torch.arange(len(labels)) - starts[classes]
    wanted = (counts.double() * share).round().long().clamp(max=counts - 1)
    held = torch.zeros(len(labels), dtype=torch.bool)
    held[by_class] = rank < wanted[classes]
    return held
