"""The data sets of torchvision, by name."""

import inspect
import numbers
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from lambdanets.data.images.config import ImageDataConfig
from lambdanets.data.images.decode import one_line, only_bad_images, pixels
from lambdanets.data.images.labelled import Labelled, Offer, labelled_item
from lambdanets.data.images.sources.classes import check_labels, numbered
from lambdanets.data.splits import DataError, Item, SplitName
from lambdanets.optional import import_torchvision

# Names of splits in order of preference.
NAMES: dict[SplitName, tuple[str, ...]] = {
    "train": ("train", "trainval"),
    "val": ("val", "valid", "validation", "test"),
}
GREY = ("1", "L", "LA", "I", "I;16", "I;16B")


def offer(config: ImageDataConfig) -> Offer:
    """`data.name` is the class, such as FashionMNIST; its files are in `data.root`, or in torch's cache."""
    torchvision = import_torchvision()

    known = [name for name in torchvision.datasets.__all__ if split_argument(getattr(torchvision.datasets, name))]
    if config.name is None or config.name not in known:
        near = get_close_matches(config.name or "", known, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise DataError(f"torchvision has no images for data.name={config.name}; {hint}choose from {', '.join(known)}")
    kind = getattr(torchvision.datasets, config.name)
    root = Path(config.root).expanduser() if config.root else Path(torch.hub.get_dir()).parent / "datasets"
    return Offer(
        train=partial(load, kind, root, "train", config.download), val=partial(load, kind, root, "val", config.download)
    )


def split_argument(kind: Any) -> str | None:
    """The argument that chooses between training and validation, if there is one."""
    parameters = inspect.signature(kind).parameters
    return next((name for name in ("train", "split") if name in parameters and "root" in parameters), None)


def load(kind: Any, root: Path, split: SplitName, download: bool) -> "TorchvisionSplit":
    images = open_images(kind, root, split, download)
    labels = all_labels(images, kind.__name__)
    names = getattr(images, "classes", None)
    if names is not None:
        # ImageNet's classes have synonyms.
        classes = tuple(name if isinstance(name, str) else ", ".join(name) for name in names)
    else:
        trained = labels if split == "train" else all_labels(open_images(kind, root, "train", download), kind.__name__)
        classes = numbered(trained, kind.__name__)
    return TorchvisionSplit(images, labels, classes, f"{kind.__name__}/{split}")


def open_images(kind: Any, root: Path, split: SplitName, download: bool) -> Any:
    options: dict[str, Any] = {"download": download} if "download" in inspect.signature(kind).parameters else {}
    try:
        if split_argument(kind) == "train":
            return kind(root, train=split == "train", **options)
        for name in NAMES[split]:
            try:
                return kind(root, split=name, **options)
            except ValueError as error:  # torchvision has no split of this name
                refused = error
    except (RuntimeError, OSError, TypeError) as error:  # TypeError if it needs more arguments
        advice = "set data.download=true, or put" if options and not download else "put"
        raise DataError(
            f"torchvision cannot open {kind.__name__} in {root}: {one_line(error)} ({advice} its files there)"
        ) from error
    raise DataError(
        f"torchvision's {kind.__name__} has no split called {' or '.join(NAMES[split])}: {one_line(refused)}"
    )


def all_labels(images: Any, name: str) -> Int64[Tensor, "n"]:
    """All labels, without reading images; torchvision's classes store them under different names."""
    for attribute in ("targets", "labels", "_labels"):
        if hasattr(images, attribute):
            found = getattr(images, attribute)
            break
    else:
        found = [sample[1] for sample in getattr(images, "_samples", ())]
    try:
        labels = torch.as_tensor(found)
    except (TypeError, ValueError, RuntimeError):
        labels = torch.empty(0)
    if labels.shape != (len(images),) or labels.is_floating_point() or not len(labels):
        raise DataError(f"torchvision's {name} does not have one label for each of its {len(images)} images")
    return labels.long()


class TorchvisionSplit(Labelled):
    def __init__(self, images: Any, labels: Int64[Tensor, "n"], classes: tuple[str, ...], origin: str) -> None:
        self.images, self.labels, self.classes, self.origin = images, labels, classes, origin
        check_labels(labels, classes, origin)
        with only_bad_images(f"{origin}[0]"):
            image, label = images[0]
        if not hasattr(image, "convert") or not isinstance(label, numbers.Integral):
            raise DataError(f"{origin} has {type(image).__name__} and {type(label).__name__}, not images with numbers")
        self.channels = 1 if image.mode in GREY else 3

    def __len__(self) -> int:
        return len(self.labels)

    def item(self, index: int) -> Item:
        return labelled_item(f"{self.origin}[{index}]", int(self.labels[index]), partial(self.read, index))

    def read(self, index: int) -> UInt8[Tensor, "c i j"]:
        with only_bad_images(f"{self.origin}[{index}]"):
            return pixels(self.images[index][0], self.channels)
