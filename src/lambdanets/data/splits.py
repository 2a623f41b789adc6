"""The two shapes of data that sources open: images that can be asked for in any order, and streams of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from jaxtyping import UInt8
from torch import Tensor

SplitName = Literal["train", "val"]


class DataError(ValueError):
    """Data that cannot be used: not there, not what it should be, or too much of it damaged. The message says which."""


class BadImageError(DataError):
    """One image that cannot be used; the rest can do without it."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)  # both, so that it survives the way from a worker
        self.name, self.reason = name, reason

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class Example(NamedTuple):
    """An image that is read when it is asked for; reading may raise `BadImageError`."""

    name: str  # what a person finds it by: a path, or the number it has
    label: int
    read: Callable[[], UInt8[Tensor, "c i j"]]


class Split(ABC):
    """Images in a fixed order. Workers get copies, so that it must be small when pickled, or share its memory."""

    classes: tuple[str, ...]
    channels: int

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def example(self, index: int) -> Example: ...


class Stream(ABC):
    """Images that come as they come, from data larger than a disk."""

    classes: tuple[str, ...]
    channels: int
    length: int | None  # examples in an epoch, if anybody knows

    @abstractmethod
    def examples(self, *, seed: int, epoch: int, part: int, parts: int) -> Iterator[Example]:
        """One of `parts` disjoint parts of an epoch; what comes when depends on the arguments alone.

        So a run that goes on where it stopped passes over what it had, without reading the images.
        """
