"""Data that comes as it comes.

Every worker of every process reads a part of its own, again from the start when it is at an end before the epoch is.
A resumed run reads its parts from the start of the epoch and passes over what it had, without decoding it: with the
same number of processes and workers it goes on with the same images. With another number the parts are others: some
images come twice in that epoch, some not at all.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from lambdanets.data.batches import Batch, Ready, Skip, prepare
from lambdanets.data.loader import Loader, Place, Plan, too_few
from lambdanets.data.splits import DataError, Example, Stream


class Parts(IterableDataset[Ready | Skip]):
    """The examples of one worker, in the order in which its batches take them."""

    def __init__(self, stream: Stream, plan: Plan, place: Place, batches: int | None) -> None:
        """`batches` of each process; None for all there is, once."""
        self.stream, self.plan, self.place, self.total = stream, plan, place, batches

    def __iter__(self) -> Iterator[Ready | Skip]:
        info = get_worker_info()
        workers = info.num_workers if info else 1
        # Batches are taken from the workers in turn, so the one who would come next has to be the first.
        worker = ((info.id if info else 0) + self.place.batch) % workers
        part, parts = self.plan.share.rank * workers + worker, self.plan.share.world * workers
        examples = self.examples(part, parts)
        first = 0
        if self.total is not None:
            had = len(range(worker, self.place.batch, workers))
            wanted = len(range(worker, self.total, workers))
            first, last = (n * self.plan.own_batch_size for n in (had, wanted))
            examples = islice(examples, first, last)
        for number, example in enumerate(examples, first):
            seed = (self.plan.seed, self.place.epoch, part, number)
            yield prepare(example, self.plan.transform, *seed)

    def examples(self, part: int, parts: int) -> Iterator[Example]:
        """Of a part, in training again and again."""
        again = 0
        while True:
            empty = True
            # Passes through the stream are told apart as epochs are; no run has as many of those.
            epoch = self.place.epoch + again * 2**20
            for example in self.stream.examples(seed=self.plan.seed, epoch=epoch, part=part, parts=parts):
                empty = False
                yield example
            if self.total is None:
                return
            if empty:
                raise DataError(f"part {part + 1} of {parts} of the stream is empty: use fewer data.workers")
            again += 1


class StreamLoader(Loader):
    """Training batches of a stream."""

    def __init__(self, stream: Stream, plan: Plan) -> None:
        self.stream, self.plan = stream, plan
        if stream.length is None:
            raise DataError("nobody knows how many images this stream has: say data.samples=NUMBER")
        self.size = stream.length
        if not len(self):
            raise DataError(too_few(self.size, plan.batch_size))

    def __len__(self) -> int:
        return self.size // self.plan.batch_size

    def batches(self) -> Iterator[Batch]:
        return load(self.stream, self.plan, self.plan.place(), len(self))


class StreamEvaluationLoader(Loader):
    """All of a stream, once."""

    def __init__(self, stream: Stream, plan: Plan) -> None:
        self.stream, self.plan = stream, plan

    def batches(self) -> Iterator[Batch]:
        return load(self.stream, self.plan, Place(), None)


class StreamSampleLoader(Loader):
    """The first images of a training stream.

    One worker at most reads them, so that they do not depend on how many there are. The last batch may be smaller;
    a stream that ends early ends them.
    """

    def __init__(self, stream: Stream, plan: Plan, images: int) -> None:
        self.stream, self.plan = stream, replace(plan, workers=min(1, plan.workers))
        self.count = -(-min(images, stream.length or images) // plan.batch_size)

    def batches(self) -> Iterator[Batch]:
        return islice(load(self.stream, self.plan, Place(), None), self.count)


def load(stream: Stream, plan: Plan, place: Place, batches: int | None) -> Iterator[Batch]:
    """Workers read their place when they start, so each epoch has its own."""
    parts = Parts(stream, replace(plan, place=Place), place, batches)  # the question itself cannot go to a worker
    return iter(DataLoader(parts, batch_size=plan.own_batch_size, **plan.loader_options(stream.channels)))
