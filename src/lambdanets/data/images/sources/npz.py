"""An .npz file with four arrays, as in the data sets of Keras."""

import tokenize
import zipfile
import zlib
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from lambdanets.data.images.config import ImageDataConfig
from lambdanets.data.images.decode import scaled_16_to_8
from lambdanets.data.images.labelled import Offer
from lambdanets.data.images.sources.arrays import ArraySplit
from lambdanets.data.images.sources.classes import numbered
from lambdanets.data.splits import DataError

DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    RuntimeError,
    SyntaxError,
    OverflowError,
    MemoryError,
    zlib.error,
    zipfile.BadZipFile,
    tokenize.TokenError,
)

OTHERWISE = "; torchvision can download data sets: data.source=torchvision data.name=CIFAR10 data.download=true"


def offer(config: ImageDataConfig) -> Offer:
    """`data.root` is the file, with x_train, y_train and maybe x_test, y_test and the names of the `classes`.

    Images are n x height x width, or with 1 or 3 channels at the end (or, if that is impossible, after n); as uint8,
    uint16, or floating-point numbers from 0 to 1. Without x_test, `data.holdout` of every class is held out.
    """
    if config.root is None:
        raise DataError(f"data.source=npz needs data.root, a file with the arrays x_train and y_train{OTHERWISE}")
    path = Path(config.root).expanduser()
    names = array_names(path)
    return Offer(
        train=partial(load, path, names, "train"), val=partial(load, path, names, "test") if "x_test" in names else None
    )


def array_names(path: Path) -> list[str]:
    if not path.is_file():
        raise DataError(f"the file {path} (data.root) does not exist{OTHERWISE}")
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except DAMAGE as error:
        raise DataError(f"{path} cannot be read as .npz: {error}") from error


def load(path: Path, names: list[str], half: str) -> ArraySplit:
    trained = read_labels(path, "y_train")
    classes = read_class_names(path) if "classes" in names else numbered(trained, f"{path}: y_train")
    labels = trained if half == "train" else read_labels(path, f"y_{half}")
    return ArraySplit(read_images(path, f"x_{half}"), labels, classes, f"{path}: x_{half}")


def read_array(path: Path, key: str) -> np.ndarray:
    """Read an array of numbers or text; arrays of Python objects could execute code."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = arrays[key]
    except DAMAGE as error:
        raise DataError(f"{path}: {key} cannot be read: {error}") from error
    if not isinstance(found, np.ndarray) or found.size == 0:  # other files in the archive are returned as bytes
        raise DataError(f"{path}: {key} is empty or not an array")
    return found


def read_class_names(path: Path) -> tuple[str, ...]:
    names = read_array(path, "classes")
    if names.dtype.kind != "U" or names.ndim != 1:
        raise DataError(f"{path}: classes must be one row of strings, got {names.dtype} of shape {names.shape}")
    return tuple(names.tolist())


def read_labels(path: Path, key: str) -> Int64[Tensor, "n"]:
    labels = read_array(path, key)
    if labels.dtype.kind not in "iu" or labels.shape[1:] not in ((), (1,)):
        raise DataError(f"{path}: {key} must be one integer for each image, got {labels.dtype} of shape {labels.shape}")
    if labels.min() < 0 or labels.max() > 2**31:
        raise DataError(f"{path}: {key} has labels from {labels.min()} to {labels.max()}")
    return torch.from_numpy(labels.astype(np.int64).reshape(-1))


def read_images(path: Path, key: str) -> UInt8[Tensor, "n c i j"]:
    images = read_array(path, key)
    try:
        return torch.from_numpy(channels_first(in_bytes(images)))
    except ValueError as error:
        raise DataError(f"{path}: {key} {error}, got {images.dtype} of shape {images.shape}") from error


def in_bytes(images: np.ndarray) -> np.ndarray:
    if images.dtype == np.uint8:
        return images
    if images.dtype == np.uint16:
        return scaled_16_to_8(images)
    if images.dtype.kind != "f":
        raise ValueError("must be uint8, uint16 or floating-point")
    if not (images.min() >= 0 and images.max() <= 1):  # also refuses NaN
        raise ValueError(f"must be from 0 to 1 if floating-point, but is from {images.min()} to {images.max()}")
    scaled: np.ndarray = np.rint(images * 255).astype(np.uint8)
    return scaled


def channels_first(images: np.ndarray) -> np.ndarray:
    """
    >>> [channels_first(np.zeros(shape)).shape for shape in [(5, 8, 8), (5, 8, 8, 3), (5, 3, 8, 8), (5, 3, 8, 1)]]
    [(5, 1, 8, 8), (5, 3, 8, 8), (5, 3, 8, 8), (5, 1, 3, 8)]
    """
    if images.ndim == 3:
        return images[:, None]
    if images.ndim == 4 and images.shape[-1] in (1, 3):
        return images.transpose(0, 3, 1, 2)
    if images.ndim == 4 and images.shape[1] in (1, 3):
        return images
    raise ValueError("must be n x height x width, or with 1 or 3 channels at the end")
