"""Images in memory, all of one size."""

from functools import partial

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from lambdanets.data.images.labelled import Labelled, labelled_item
from lambdanets.data.images.sources.classes import check_labels
from lambdanets.data.splits import DataError, Item


class ArraySplit(Labelled):
    """Images as tensors, because spawned workers share the memory of tensors and would copy arrays."""

    def __init__(
        self, images: UInt8[Tensor, "n c i j"], labels: Int64[Tensor, "m"], classes: tuple[str, ...], origin: str
    ) -> None:
        """`origin` names the data in messages: a file, or the name of a data set."""
        if len(images) != len(labels) or not len(images):
            raise DataError(f"{origin} has {len(images)} images and {len(labels)} labels")
        check_labels(labels, classes, origin)
        self.images, self.labels, self.classes, self.origin = images, labels, classes, origin
        self.channels = images.shape[1]

    def __len__(self) -> int:
        return len(self.labels)

    def item(self, index: int) -> Item:
        return labelled_item(f"{self.origin}[{index}]", int(self.labels[index]), partial(self.read, index))

    def read(self, index: int) -> UInt8[Tensor, "c i j"]:
        """A copy, so that changes of it do not affect other epochs."""
        return self.images[index].clone(memory_format=torch.contiguous_format)
