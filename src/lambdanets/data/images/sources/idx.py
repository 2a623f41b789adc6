"""The idx files of MNIST and its successors."""

import gzip
import math
import struct
import zlib
from functools import partial
from pathlib import Path

import torch
from jaxtyping import UInt8
from torch import Tensor

from lambdanets.data.images.config import ImageDataConfig
from lambdanets.data.images.labelled import Offer
from lambdanets.data.images.sources.arrays import ArraySplit
from lambdanets.data.images.sources.classes import numbered, read_classes
from lambdanets.data.splits import DataError, SplitName

PREFIXES: dict[SplitName, str] = {"train": "train", "val": "t10k"}
PIECE = 1 << 20
OTHERWISE = (
    "Fashion-MNIST is in Debian's package dataset-fashion-mnist; torchvision can download it: "
    "data.source=torchvision data.name=FashionMNIST data.download=true"
)


def offer(config: ImageDataConfig) -> Offer:
    """`data.root` is the folder with the four files, plain or as .gz; `classes.txt` beside them names the classes."""
    if config.root is None:
        raise DataError(
            f"data.source=idx needs data.root, the folder with train-images-idx3-ubyte and the others. {OTHERWISE}"
        )
    folder = Path(config.root).expanduser()
    return Offer(train=partial(load, folder, "train"), val=partial(load, folder, "val"))


def load(folder: Path, split: SplitName) -> ArraySplit:
    images = find(folder, f"{PREFIXES[split]}-images-idx3-ubyte")
    labels = find(folder, f"{PREFIXES[split]}-labels-idx1-ubyte")
    trained = find(folder, f"{PREFIXES['train']}-labels-idx1-ubyte")
    classes = read_classes(folder) or numbered(read_idx(trained, dimensions=1).long(), str(trained))
    grey = read_idx(images, dimensions=3)[:, None]
    return ArraySplit(grey, read_idx(labels, dimensions=1).long(), classes, str(images))


def find(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise DataError(f"neither {folder / name} nor {name}.gz exists (data.root={folder}). {OTHERWISE}")


def read_idx(path: Path, *, dimensions: int) -> UInt8[Tensor, "..."]:
    """Read bytes after a header with their shape. They are read in pieces, so that a header that claims terabytes does
    not allocate them.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            header = file.read(4 + 4 * dimensions)
            if len(header) < 4 + 4 * dimensions or header[:4] != bytes([0, 0, 8, dimensions]):
                begins = header[:4].hex(" ")
                raise DataError(
                    f"{path} is not an idx file of bytes with {dimensions} dimensions: it starts with {begins}"
                )
            shape = struct.unpack(f">{dimensions}I", header[4:])
            size = math.prod(shape)
            content = bytearray()
            while len(content) <= size and (piece := file.read(min(PIECE, size + 1 - len(content)))):
                content += piece
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read and may be damaged: {error}") from error
    if len(content) != size or size == 0:
        found = f"{len(content)}" if len(content) <= size else "more"
        raise DataError(f"{path} is damaged: its header says {' x '.join(map(str, shape))} bytes, there are {found}")
    return torch.frombuffer(content, dtype=torch.uint8).view(shape)
