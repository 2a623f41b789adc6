"""What streams share."""

from collections.abc import Callable
from functools import partial
from typing import NoReturn

from jaxtyping import UInt8
from torch import Tensor

from lambdanets.data.splits import BadImageError, Example

BUFFER = 1000  # examples to pick from at random; their files are in memory


def checked_example(name: str, label: object, classes: int, read: Callable[[], UInt8[Tensor, "c i j"]]) -> Example:
    """With a label that is one of so many classes.

    >>> checked_example("7.png", 3, 2, lambda: None).read()
    Traceback (most recent call last):
    lambdanets.data.splits.BadImageError: 7.png: its label is 3, but there are 2 classes
    """
    if isinstance(label, int) and 0 <= label < classes:
        return Example(name, label, read)
    return bad_example(name, f"its label is {label}, but there are {classes} classes")


def bad_example(name: str, reason: str) -> Example:
    """For what is none: it cannot be read, so that somebody hears of it."""
    return Example(name, -1, partial(refuse, name, reason))


def refuse(name: str, reason: str) -> NoReturn:
    raise BadImageError(name, reason)
