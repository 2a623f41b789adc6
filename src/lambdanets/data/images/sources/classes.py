"""Names of classes, for data that has numbers only."""

from pathlib import Path

from jaxtyping import Int64
from torch import Tensor

from lambdanets.data.splits import DataError
from lambdanets.files import read_text, reason

FILE = "classes.txt"


def read_classes(folder: Path) -> tuple[str, ...] | None:
    """The lines of `classes.txt`, if it exists; the first line is class 0."""
    path = folder / FILE
    try:
        names = tuple(line.strip() for line in read_text(path).strip().splitlines())
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {reason(error)}") from error
    if not names or "" in names or len(set(names)) < len(names):
        raise DataError(f"{path} must have one class in each line, all distinct, got {len(names)} lines: {names[:20]}")
    return names


def check_labels(labels: Int64[Tensor, "n"], classes: tuple[str, ...], origin: str) -> None:
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or highest >= len(classes):
        raise DataError(f"{origin} has labels from {lowest} to {highest}, but there are {len(classes)} classes")


def numbered(labels: Int64[Tensor, "n"], origin: str) -> tuple[str, ...]:
    """Numbers as names of classes, as many as the training labels of `origin` need.

    >>> import torch
    >>> numbered(torch.tensor([0, 3, 1, 1]), "labels.npy")
    ('0', '1', '2', '3')
    """
    highest = int(labels.max())
    if highest >= len(labels):  # not a class number; the network would be far too large
        raise DataError(f"{origin} has a label {highest}, but only {len(labels)} images")
    return tuple(str(number) for number in range(highest + 1))
