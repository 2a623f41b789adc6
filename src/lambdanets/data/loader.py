"""Batches in an order that depends on the seed, the epoch and the position in it alone.

A resumed run asks for the rest of its epoch and gets what it would have got: no state of workers or shuffles has to be
saved. The order is one for all processes together, each of which takes its share of every batch, so it does not change
with their number either.
"""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from lambdanets.data.batches import Batch, Collate, CollateReadable, ToExample
from lambdanets.data.splits import DataError


class Position(NamedTuple):
    """Where in a run to begin."""

    epoch: int = 0
    batch: int = 0


class Share(NamedTuple):
    """One of the processes that work together."""

    rank: int = 0
    world: int = 1


@dataclass(frozen=True, kw_only=True)
class LoaderOptions:
    """How to go through data, whatever its shape."""

    to_example: ToExample
    collate: Collate
    batch_size: int  # of all processes together
    seed: int = 0
    workers: int = 0
    share: Share = field(default_factory=Share)
    position: Callable[[], Position] = Position  # called when the first batch of an epoch is needed
    items: str = "items"  # what they are called in messages

    @property
    def own_batch_size(self) -> int:
        if self.batch_size % self.share.world:
            raise DataError(f"data.batch_size={self.batch_size} is not a multiple of the {self.share.world} processes")
        return self.batch_size // self.share.world

    def for_torch(self) -> dict[str, Any]:
        """Arguments of torch's DataLoader."""
        return {
            "num_workers": self.workers,
            "collate_fn": CollateReadable(self.collate),
            "worker_init_fn": ignore_signals,
            # Without one, every epoch would draw a number from the generator that dropout draws from.
            "generator": torch.Generator(),
            "pin_memory": torch.cuda.is_available(),
        }

    def too_few(self, size: int) -> str:
        return f"there are {size} {self.items}, not enough for a batch of data.batch_size={self.batch_size}"


class Loader(ABC):
    """What a trainer iterates over, once for each epoch."""

    waited = 0.0  # seconds spent waiting for batches

    @abstractmethod
    def batches(self) -> Iterator[Batch]:
        """Of one epoch, from the position on."""

    def __iter__(self) -> Iterator[Batch]:
        """Lazy: the trainer knows its position only when it asks for the first batch."""
        began = time.perf_counter()
        for batch in self.batches():
            self.waited += time.perf_counter() - began
            yield batch
            began = time.perf_counter()


def ignore_signals(_: int) -> None:
    """Ctrl-C and schedulers signal whole process groups; without its workers a run could not be saved any more."""
    os.setpgrp()
