"""Loaders for streams.

Every worker of every process reads its own part, repeatedly if it is shorter than the epoch. A resumed run reads its
parts from the start of the epoch and skips earlier items without decoding them, so with the same number of processes
and workers it continues with the same items. With another number the parts differ: that epoch repeats some items and
misses others.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from lambdanets.data.batches import Batch, Prepared, Skip, prepare
from lambdanets.data.loader import Loader, LoaderOptions, Position
from lambdanets.data.splits import DataError, Item, Stream


class Parts(IterableDataset[Prepared | Skip]):
    """The examples of one worker, in the order in which its batches take them."""

    def __init__(self, stream: Stream, options: LoaderOptions, position: Position, batches: int | None) -> None:
        """`batches` is the number for each process; None reads the whole stream once."""
        self.stream, self.options, self.position, self.total = stream, options, position, batches

    def __iter__(self) -> Iterator[Prepared | Skip]:
        info = get_worker_info()
        workers = info.num_workers if info else 1
        # The DataLoader takes batches from workers in turn, starting with the first; rotate them to the position.
        worker = ((info.id if info else 0) + self.position.batch) % workers
        part, parts = self.options.share.rank * workers + worker, self.options.share.world * workers
        items = self.items(part, parts)
        first = 0
        if self.total is not None:
            had = len(range(worker, self.position.batch, workers))
            wanted = len(range(worker, self.total, workers))
            first, last = (n * self.options.own_batch_size for n in (had, wanted))
            items = islice(items, first, last)
        for number, item in enumerate(items, first):
            seed = (self.options.seed, self.position.epoch, part, number)
            yield prepare(item, self.options.to_example, *seed)

    def items(self, part: int, parts: int) -> Iterator[Item]:
        """The items of a part, repeated without end in training."""
        passes = 0
        while True:
            empty = True
            # Passes get distinct numbers of epochs, which no run reaches.
            epoch = self.position.epoch + passes * 2**20
            for item in self.stream.items(seed=self.options.seed, epoch=epoch, part=part, parts=parts):
                empty = False
                yield item
            if self.total is None:
                return
            if empty:
                raise DataError(f"part {part + 1} of {parts} of the stream is empty: use fewer data.workers")
            passes += 1


def count_batches(stream: Stream, options: LoaderOptions) -> int:
    """The number of batches in an epoch of training; DataError if it is unknown or zero."""
    if stream.length is None:
        raise DataError("the stream's length is unknown: set data.samples=NUMBER")
    if stream.length < options.batch_size:
        raise DataError(options.too_few(stream.length))
    return stream.length // options.batch_size


class StreamLoader(Loader):
    """Training batches of a stream."""

    def __init__(self, stream: Stream, options: LoaderOptions) -> None:
        self.stream, self.options, self.count = stream, options, count_batches(stream, options)

    def __len__(self) -> int:
        return self.count

    def batches(self) -> Iterator[Batch]:
        return load(self.stream, self.options, self.options.position(), len(self))


class StreamEvaluationLoader(Loader):
    """Reads the whole stream once."""

    def __init__(self, stream: Stream, options: LoaderOptions) -> None:
        self.stream, self.options = stream, options

    def batches(self) -> Iterator[Batch]:
        return load(self.stream, self.options, Position(), None)


class StreamSampleLoader(Loader):
    """The first items of a training stream.

    At most one worker reads them, so that they do not depend on the number of workers. The last batch may be smaller.
    """

    def __init__(self, stream: Stream, options: LoaderOptions, items: int) -> None:
        self.stream, self.options = stream, replace(options, workers=min(1, options.workers))
        self.count = -(-min(items, stream.length or items) // options.batch_size)

    def batches(self) -> Iterator[Batch]:
        return islice(load(self.stream, self.options, Position(), None), self.count)


def load(stream: Stream, options: LoaderOptions, position: Position, batches: int | None) -> Iterator[Batch]:
    """Start the workers of an epoch, which get the position when they start."""
    parts = Parts(
        stream, replace(options, position=Position), position, batches
    )  # a method cannot be pickled to a worker
    return iter(DataLoader(parts, batch_size=options.own_batch_size, **options.for_torch()))
