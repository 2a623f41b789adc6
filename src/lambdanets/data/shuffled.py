"""Data whose images can be asked for in any order."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from lambdanets.data.batches import PADDING, Batch, Ready, Skip, prepare
from lambdanets.data.loader import Loader, Place, Plan, too_few
from lambdanets.data.splits import DataError, Split
from lambdanets.data.transforms import mixed


class Which(NamedTuple):
    """An image and the epoch it is wanted in, which decides how it is changed."""

    image: int
    epoch: int
    padding: bool = False


class Order(Sampler[list[Which]]):
    """Which images make the batches of an epoch.

    >>> plan = Plan(transform=lambda image: image, image_size=8, batch_size=4)
    >>> order = Order(10, plan, shuffle=False)
    >>> [[which.image for which in batch] for batch in order]
    [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    >>> order.place = Place(epoch=0, batch=2)
    >>> len(order), [[which.image for which in batch] for batch in order]
    (3, [[8, 9]])
    """

    def __init__(self, size: int, plan: Plan, *, shuffle: bool) -> None:
        self.size, self.plan, self.shuffle = size, plan, shuffle
        self.place = Place()

    def __len__(self) -> int:
        """Shuffled, whole batches only: what is left over comes at another place in another epoch."""
        return self.size // self.plan.batch_size if self.shuffle else -(-self.size // self.plan.batch_size)

    def __iter__(self) -> Iterator[list[Which]]:
        epoch, first = self.place
        order = torch.arange(self.size)
        if self.shuffle:
            generator = torch.Generator().manual_seed(mixed(self.plan.seed, epoch))
            order = torch.randperm(self.size, generator=generator)
        for batch in range(first, len(self)):
            yield self.own_part(order[batch * self.plan.batch_size :][: self.plan.batch_size].tolist(), epoch)

    def own_part(self, batch: list[int], epoch: int) -> list[Which]:
        """This process' part of a batch; the last one is filled up, for all processes must have as many."""
        (rank, world), size = self.plan.share, self.plan.own_batch_size
        if len(batch) < self.plan.batch_size:
            size = -(-len(batch) // world)
        own = [Which(image, epoch) for image in batch[rank * size : (rank + 1) * size]]
        return own + [Which(batch[0], epoch, padding=True)] * (size - len(own))


class Images(Dataset[Ready | Skip]):
    """Images as batches want them."""

    def __init__(self, split: Split, plan: Plan) -> None:
        self.split, self.transform, self.seed = split, plan.transform, plan.seed

    def __getitem__(self, which: Which) -> Ready | Skip:
        item = prepare(self.split.example(which.image), self.transform, self.seed, which.epoch, which.image)
        return item._replace(label=PADDING) if which.padding and isinstance(item, Ready) else item


class SplitLoader(Loader):
    """Batches of a split, shuffled for training or in their order."""

    def __init__(self, split: Split, plan: Plan, *, shuffle: bool) -> None:
        self.plan = plan
        self.size = len(split)
        self.order = Order(self.size, plan, shuffle=shuffle)
        if not len(self.order):
            raise DataError(too_few(self.size, plan.batch_size))
        self.loader = DataLoader(
            Images(split, plan),
            batch_sampler=self.order,
            **plan.loader_options(split.channels),
        )

    def __len__(self) -> int:
        return len(self.order)

    def batches(self) -> Iterator[Batch]:
        self.order.place = self.plan.place()
        return iter(self.loader)
