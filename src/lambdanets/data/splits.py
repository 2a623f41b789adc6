"""The two kinds of data: splits, whose items can be indexed, and streams of items."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Int64
from torch import Tensor

SplitName = Literal["train", "val"]


class DataError(ValueError):
    """Data that cannot be used: missing, malformed, or with too many unreadable items."""


class BadItemError(DataError):
    """One item that cannot be used; it is skipped."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)  # both, so that it can be pickled
        self.name, self.reason = name, reason

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class Item(NamedTuple):
    """Something to read when it is needed, such as an image with its label; reading may raise `BadItemError`."""

    name: str  # for messages, such as a path; unique in a split
    read: Callable[[], Any]


class Split(ABC):
    """Items in a fixed order. It is pickled to workers, so it must be small or share its memory."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def item(self, index: int) -> Item: ...


class Stream(ABC):
    """Items in the order of their arrival, for data that is too large to store."""

    length: int | None  # items in an epoch, if known

    @abstractmethod
    def items(self, *, seed: int, epoch: int, part: int, parts: int) -> Iterator[Item]:
        """One of `parts` disjoint parts of an epoch; the order depends only on the arguments.

        A resumed run skips the items before its position without reading them.
        """


class Subset(Split):
    """Some items of a split, by index."""

    def __init__(self, split: Split, indices: Int64[Tensor, "n"]) -> None:
        self.split, self.indices = split, indices

    def __len__(self) -> int:
        return len(self.indices)

    def item(self, index: int) -> Item:
        return self.split.item(int(self.indices[index]))


def first(split: Split, limit: int) -> Subset:
    """The first items of a fixed shuffle, because many sources are sorted by class."""
    return Subset(split, fixed_shuffle(len(split))[:limit])


def fixed_shuffle(size: int) -> Int64[Tensor, "n"]:
    return torch.randperm(size, generator=torch.Generator().manual_seed(0))


def length_of(split: Split | Stream) -> int | None:
    return split.length if isinstance(split, Stream) else len(split)
