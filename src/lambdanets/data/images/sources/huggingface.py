"""Streams of data sets from the Hugging Face Hub, or of local files."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from jaxtyping import UInt8
from torch import Tensor

from lambdanets.data.images.config import ImageDataConfig
from lambdanets.data.images.decode import decode, one_line, only_bad_images
from lambdanets.data.images.labelled import ImageStream, Offer, bad_item, checked_item
from lambdanets.data.images.sources.classes import FILE, read_classes
from lambdanets.data.splits import DataError, Item, SplitName

VALIDATION = ("validation", "val", "test")
BUFFER = 1000  # items of the shuffle buffer, with their files in memory
ROWS = 16  # converted at once


def offer(config: ImageDataConfig) -> Offer:
    """`data.name` is a data set of the Hub, or a format (imagefolder, parquet) of the files or folder `data.root`.

    Code that comes with a data set is never executed: the library does not support it any more.
    """
    if config.name is None and config.root is None:
        raise DataError("data.source=huggingface needs data.name, a data set such as uoft-cs/cifar10, or data.root")
    return Offer(train=partial(load, config, "train"), val=partial(load, config, "val"))


def load(config: ImageDataConfig, split: SplitName) -> "HuggingFaceStream":
    from datasets import ClassLabel, Image, load_dataset

    root = Path(config.root).expanduser() if config.root is not None else None
    origin = config.name or str(root)
    try:
        found: Any = load_dataset(origin, **where(root if config.name else None), streaming=True)
        wanted = next((name for name in (VALIDATION if split == "val" else ("train",)) if name in found), None)
        if wanted is None:
            names = "a split train" if split == "train" else f"any of the splits {', '.join(VALIDATION)}"
            raise DataError(f"{origin} does not have {names}; its splits are {', '.join(found)}")
        images = found[wanted]
        features = images.features or {}
    except (OSError, ValueError, RuntimeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"Hugging Face's datasets cannot open {origin}: {one_line(error)}") from error
    image = only_column(origin, features, "image", [c for c, kind in features.items() if isinstance(kind, Image)])
    named = [c for c, kind in features.items() if isinstance(kind, ClassLabel)]
    numbers = [c for c, kind in features.items() if "int" in str(getattr(kind, "dtype", ""))]
    label = only_column(origin, features, "label", named or numbers)
    classes = tuple(features[label].names) if named else None
    if classes is None and root is not None:
        classes = read_classes(root if root.is_dir() else root.parent)
    if classes is None:
        raise DataError(
            f"the column {label} of {origin} does not define the classes: make it a ClassLabel, "
            f"or write their names to {FILE} in the folder data.root, one in each line"
        )
    stored = (images.info.splits or {}).get(wanted)
    length = (config.samples if split == "train" else None) or (stored.num_examples if stored else None) or None
    raw = images.cast_column(image, Image(decode=False)).select_columns([image, label])
    return HuggingFaceStream(raw, image, label, classes, length, origin=f"{origin}/{wanted}", shuffle=split == "train")


def where(root: Path | None) -> dict[str, str]:
    """The argument of `load_dataset` for `data.root`.

    >>> where(None), where(Path("set")), where(Path("set/train-*.parquet"))
    ({}, {'data_dir': 'set'}, {'data_files': 'set/train-*.parquet'})
    """
    if root is None:
        return {}
    return {"data_files" if root.is_file() or "*" in str(root) else "data_dir": str(root)}


def only_column(origin: str, features: Any, what: str, candidates: list[str]) -> str:
    """The only candidate, or the one whose name is `what`."""
    if len(candidates) == 1:
        return candidates[0]
    if what in candidates:
        return what
    columns = ", ".join(f"{name}: {type(kind).__name__}" for name, kind in features.items())
    problem = f"candidates are {', '.join(candidates)}" if candidates else "there are no candidates"
    raise DataError(f"{origin} has no unique column for the {what}: {problem}; columns are {columns}")


class HuggingFaceStream(ImageStream):
    channels = 3

    def __init__(
        self,
        images: Any,
        image: str,
        label: str,
        classes: tuple[str, ...],
        length: int | None,
        *,
        origin: str,
        shuffle: bool,
    ) -> None:
        self.images, self.image, self.label = images, image, label
        self.classes, self.length, self.origin, self.shuffle = classes, length, origin, shuffle

    def items(self, *, seed: int, epoch: int, part: int, parts: int) -> Iterator[Item]:
        """Whole shards go to each part if there are enough of them, otherwise every `parts`-th example."""
        import numpy as np
        from datasets.distributed import split_dataset_by_node

        images = self.images
        if self.shuffle:
            generator = np.random.default_rng([seed, epoch])
            # One shard at a time: several are read by threads, which the library ends with 5 s of sleep in every pass.
            images = images.shuffle(generator=generator, buffer_size=BUFFER, max_buffer_input_shards=1)
        strategy = "shards" if images.num_shards >= parts else "examples"
        images = split_dataset_by_node(images, rank=part, world_size=parts, strategy=strategy)
        number = 0
        try:
            # Not iter(images), which would split the part again in a worker of torch's DataLoader.
            for rows in images.iter(batch_size=ROWS):
                for row, label in zip(rows[self.image], rows[self.label], strict=True):
                    yield self.item(row, label, number)
                    number += 1
        except (OSError, ValueError, RuntimeError) as error:
            raise DataError(f"{self.origin} cannot be read after {number} images: {one_line(error)}") from error

    def item(self, row: Any, label: Any, number: int) -> Item:
        row = row or {"bytes": None, "path": None}
        name = f"{self.origin}/{row['path'] or number}" if row["bytes"] or not row["path"] else row["path"]
        if not row["bytes"] and not row["path"]:
            return bad_item(name, "there is no image")
        return checked_item(name, label, len(self.classes), partial(read, row, name, self.channels))


def read(row: dict[str, Any], name: str, channels: int) -> UInt8[Tensor, "c i j"]:
    """Decode the bytes in the row, or the file that it names, which may be on the Hub or in an archive."""
    import fsspec

    content = row["bytes"]
    if not content:
        with only_bad_images(name), fsspec.open(row["path"], "rb") as file:
            content = file.read()
    return decode(content, name, channels)
