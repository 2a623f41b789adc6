"""Image files with one folder for each class, as in ImageNet."""

import os
from collections.abc import Iterator
from functools import partial
from itertools import accumulate
from pathlib import Path

import torch

from lambdanets.data.images.config import ImageDataConfig
from lambdanets.data.images.decode import EXTENSIONS, decode
from lambdanets.data.images.labelled import Labelled, Offer, labelled_item
from lambdanets.data.splits import DataError, Item

VALIDATION = ("val", "validation", "test")


def offer(config: ImageDataConfig) -> Offer:
    """`data.root` has train/CLASS/*.jpg, and val (or validation, or test)/CLASS/*.jpg; or only CLASS/*.jpg.

    Without a validation folder, `data.holdout` of every class is held out.
    """
    if config.root is None:
        raise DataError("data.source=folder needs data.root, a folder with train/CLASS/*.jpg and val/CLASS/*.jpg")
    root = Path(config.root).expanduser()
    validation = next((root / name for name in VALIDATION if (root / name).is_dir()), None)
    train = root / "train"
    if not train.is_dir():
        if validation is not None:
            raise DataError(f"{validation} exists, but the folder {train} does not")
        train = root
    classes = class_folders(train)
    if not classes:
        raise DataError(f"{train} must have a folder for each class, but has no folders")
    return Offer(
        train=partial(FolderSplit, train, classes),
        val=None if validation is None else partial(load_validation, validation, classes),
    )


def class_folders(folder: Path) -> tuple[str, ...]:
    try:
        with os.scandir(folder) as entries:
            return tuple(sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")))
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror}") from error


def load_validation(folder: Path, classes: tuple[str, ...]) -> "FolderSplit":
    """Validation may lack classes, but must not have others than training."""
    there = class_folders(folder)
    if unknown := sorted(set(there) - set(classes)):
        raise DataError(f"{folder} has classes that training does not have: {', '.join(unknown[:10])}")
    return FolderSplit(folder, classes, there)


class FolderSplit(Labelled):
    channels = 3

    def __init__(self, folder: Path, classes: tuple[str, ...], there: tuple[str, ...] | None = None) -> None:
        """`there` are the classes with a folder; all by default."""
        self.folder, self.classes = folder, classes
        names: list[bytes] = []
        labels: list[int] = []
        for label, name in enumerate(classes):
            if there is not None and name not in there:
                continue
            found = sorted(image_files(folder / name))
            if not found:
                extensions = ", ".join(sorted(EXTENSIONS))
                raise DataError(f"{folder / name} has no images ({extensions}): remove it, or put some there")
            names += found
            labels += [label] * len(found)
        if not names:
            raise DataError(f"{folder} has no images")
        self.paths = Strings(names)
        self.labels = torch.tensor(labels)

    def __len__(self) -> int:
        return len(self.labels)

    def item(self, index: int) -> Item:
        label = int(self.labels[index])
        path = self.folder / self.classes[label] / os.fsdecode(self.paths[index])
        name = os.fsencode(path).decode(errors="backslashreplace")  # file names may not be valid text
        return labelled_item(name, label, partial(decode, path, name, self.channels))


def image_files(folder: Path) -> Iterator[bytes]:
    """All image files below a folder, as relative paths."""

    def refuse(error: OSError) -> None:
        raise DataError(f"{error.filename} cannot be read: {error.strerror}") from error

    skipped = len(os.fsencode(folder)) + 1
    for parent, _, files in os.walk(folder, onerror=refuse):
        for file in files:
            if file.rpartition(".")[2].lower() in EXTENSIONS:
                yield os.fsencode(os.path.join(parent, file))[skipped:]


class Strings:
    """Many short strings in two tensors, which workers share.

    A million Python objects would be copied to every worker: spawned workers unpickle them, and in forked workers
    reference counts write to every page.

    >>> Strings([b"ab", b"", b"c"])[0]
    b'ab'
    """

    def __init__(self, strings: list[bytes]) -> None:
        self.ends = torch.tensor(list(accumulate(map(len, strings))))
        self.text = torch.frombuffer(bytearray(b"".join(strings)), dtype=torch.uint8)

    def __getitem__(self, index: int) -> bytes:
        begin = int(self.ends[index - 1]) if index else 0
        return self.text[begin : int(self.ends[index])].numpy().tobytes()
