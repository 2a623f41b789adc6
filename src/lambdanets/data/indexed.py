"""Loaders for splits, whose items can be indexed."""

from collections.abc import Iterator
from typing import NamedTuple

from torch.utils.data import DataLoader, Dataset, Sampler

from lambdanets.data.batches import Batch, Prepared, Skip, ToExample, prepare
from lambdanets.data.batching import Batching, FixedSize
from lambdanets.data.loader import Loader, LoaderOptions, Position, Share
from lambdanets.data.splits import DataError, Split


class Index(NamedTuple):
    """An item and its epoch, which seeds its random augmentation."""

    item: int
    epoch: int
    is_valid: bool = True


class Order(Sampler[list[Index]]):
    """The share of this process in the batches of an epoch.

    >>> order = Order(10, FixedSize(4), shuffle=False)
    >>> [[index.item for index in batch] for batch in order]
    [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    >>> order.position = Position(epoch=0, batch=2)
    >>> len(order), [[index.item for index in batch] for batch in order]
    (3, [[8, 9]])
    """

    def __init__(
        self, size: int, batching: Batching, *, shuffle: bool, seed: int = 0, share: Share | None = None
    ) -> None:
        self.size, self.batching, self.shuffle, self.seed = size, batching, shuffle, seed
        self.share, self.position = share or Share(), Position()

    def __len__(self) -> int:
        return self.batching.count(self.size, shuffle=self.shuffle)

    def __iter__(self) -> Iterator[list[Index]]:
        epoch, first = self.position
        batches = self.batching.batches(self.size, shuffle=self.shuffle, seed=self.seed, epoch=epoch, first=first)
        for batch in batches:
            yield self.own_share(batch, epoch)

    def own_share(self, batch: list[int], epoch: int) -> list[Index]:
        """Equal shares, padded with examples that are not valid, to keep processes in step."""
        rank, world = self.share
        size = -(-len(batch) // world)
        own = [Index(item, epoch) for item in batch[rank * size : (rank + 1) * size]]
        return own + [Index(batch[0], epoch, is_valid=False)] * (size - len(own))


class Examples(Dataset[Prepared | Skip]):
    """The items of a split as examples."""

    def __init__(self, split: Split, to_example: ToExample, seed: int) -> None:
        self.split, self.to_example, self.seed = split, to_example, seed

    def __getitem__(self, index: Index) -> Prepared | Skip:
        found = prepare(self.split.item(index.item), self.to_example, self.seed, index.epoch, index.item)
        return found._replace(is_valid=index.is_valid) if isinstance(found, Prepared) else found


def count_batches(split: Split, options: LoaderOptions, batching: Batching | None, *, shuffle: bool) -> int:
    """The number of batches in an epoch; DataError if there is none, or if processes cannot share a batch equally."""
    if batching is None or isinstance(batching, FixedSize):
        _ = options.own_batch_size
    count = (batching or FixedSize(options.batch_size)).count(len(split), shuffle=shuffle)
    if not count:
        raise DataError(options.too_few(len(split)))
    return count


class SplitLoader(Loader):
    """Batches of a split, shuffled for training or in order."""

    def __init__(
        self, split: Split, options: LoaderOptions, *, shuffle: bool, batching: Batching | None = None
    ) -> None:
        """`batching`: a fixed number of items by default."""
        self.options = options
        batching = batching or FixedSize(options.batch_size)
        count_batches(split, options, batching, shuffle=shuffle)
        self.order = Order(len(split), batching, shuffle=shuffle, seed=options.seed, share=options.share)
        self.loader = DataLoader(
            Examples(split, options.to_example, options.seed), batch_sampler=self.order, **options.for_torch()
        )

    def __len__(self) -> int:
        return len(self.order)

    def batches(self) -> Iterator[Batch]:
        self.order.position = self.options.position()
        return iter(self.loader)
