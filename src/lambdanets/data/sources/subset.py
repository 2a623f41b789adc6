"""Some images of a split: those held out to validate with, those left to train with, the first few."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from lambdanets.data.splits import DataError, Example, Split, Stream


class Offer(NamedTuple):
    """What a source has, opened when it is asked for."""

    train: Callable[[], Split | Stream]
    val: Callable[[], Split | Stream] | None  # None: images of training are held out, so that must be `Labelled`


class Labelled(Split):
    """A split that knows all labels at once, so that every class gets its share of what is held out."""

    labels: Int64[Tensor, "n"]


class Subset(Split):
    def __init__(self, split: Split, indices: Int64[Tensor, "n"]) -> None:
        self.split, self.indices = split, indices
        self.classes, self.channels = split.classes, split.channels

    def __len__(self) -> int:
        return len(self.indices)

    def example(self, index: int) -> Example:
        return self.split.example(int(self.indices[index]))


def labels_of(split: Split) -> Int64[Tensor, "n"] | None:
    """Of all images, None if that takes reading them."""
    if isinstance(split, Labelled):
        return split.labels
    if not isinstance(split, Subset):
        return None
    labels = labels_of(split.split)
    return None if labels is None else labels[split.indices]


def without_held_out(split: Labelled, share: float) -> Subset:
    return Subset(split, (~held_out(split.labels, share)).nonzero().flatten())


def only_held_out(split: Labelled, share: float) -> Subset:
    held = held_out(split.labels, share)
    if not held.any():
        raise DataError(
            f"data.holdout={share} of {len(held)} training images in {len(split.classes)} classes holds out none; "
            "there are no others to validate with: say more, or add some"
        )
    return Subset(split, held.nonzero().flatten())


def held_out(labels: Int64[Tensor, "n"], share: float) -> Bool[Tensor, "n"]:
    """The same share of every class, always the same images; of every class one at least is left to train with.

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


def first(split: Split, limit: int) -> Subset:
    """Of a fixed shuffle, because many sources have their images class by class."""
    return Subset(split, fixed_shuffle(len(split))[:limit])


def fixed_shuffle(size: int) -> Int64[Tensor, "n"]:
    return torch.randperm(size, generator=torch.Generator().manual_seed(0))
