"""Made-up images, folders and files of them, and what sources make of those."""

import io
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lambdanets.data.images import ImageDataConfig
from lambdanets.data.images.sources import open_split
from lambdanets.data.splits import DataError, Split, SplitName

SIZE = (13, 11)  # width and height


def noise(seed: int = 0, shape: tuple[int, ...] = (11, 13, 3), kind: type = np.uint8) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, np.iinfo(kind).max + 1, shape, dtype=kind)


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def picture(seed: int = 0, kind: str = "PNG") -> bytes:
    return encoded(Image.fromarray(noise(seed)), kind)


def write_folder(root: Path, counts: dict[str, int]) -> None:
    """As many images in each folder; all different."""
    for folder, (name, count) in enumerate(counts.items()):
        (root / name).mkdir(parents=True)
        for number in range(count):
            (root / name / f"{number:03}.png").write_bytes(picture(1000 * folder + number))


def open_both(**options: object) -> tuple[Split, Split]:
    config = ImageDataConfig(**options)
    train, val = open_split(config, "train"), open_split(config, "val")
    assert isinstance(train, Split)
    assert isinstance(val, Split)
    assert train.classes == val.classes
    return train, val


def names(split: Split) -> list[str]:
    return [split.item(i).name for i in range(len(split))]


def labels(split: Split) -> list[int]:
    return [split.item(i).read().label for i in range(len(split))]


def refusal(split: SplitName, **options: object) -> str:
    """What a source says of what it cannot open."""
    with pytest.raises(DataError) as caught:
        open_split(ImageDataConfig(**options), split)
    return str(caught.value)


def refusal_or_nothing(split: SplitName, **options: object) -> str:
    """The same of what may be in order."""
    try:
        open_split(ImageDataConfig(**options), split)
    except DataError as error:
        return str(error)
    return ""


def idx(array: np.ndarray) -> bytes:
    """As MNIST's files are."""
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
