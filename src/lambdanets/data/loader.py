"""Batches in an order that depends on the seed, the epoch and the place in it alone.

A run that goes on where it stopped asks for the rest of its epoch and gets what it would have got: nothing about
workers or shuffles has to be kept. The order is one for all processes together, each of which takes its share of every
batch, so it does not change with their number either.
"""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from lambdanets.data.batches import Batch, Collate
from lambdanets.data.splits import DataError
from lambdanets.data.transforms import Transform


class Place(NamedTuple):
    """Where in a run to begin."""

    epoch: int = 0
    batch: int = 0


class Share(NamedTuple):
    """One of the processes that work together."""

    rank: int = 0
    world: int = 1


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How to go through data, whatever shape it has."""

    transform: Transform
    image_size: int
    batch_size: int  # of all processes together
    seed: int = 0
    workers: int = 0
    share: Share = field(default_factory=Share)
    place: Callable[[], Place] = Place  # asked when the first batch of an epoch is

    @property
    def own_batch_size(self) -> int:
        if self.batch_size % self.share.world:
            raise DataError(f"data.batch_size={self.batch_size} is no multiple of the {self.share.world} processes")
        return self.batch_size // self.share.world

    def loader_options(self, channels: int) -> dict[str, Any]:
        """Of torch's DataLoader."""
        return {
            "num_workers": self.workers,
            "collate_fn": Collate(channels, self.image_size),
            "worker_init_fn": leave_signals_to_the_parent,
            # Without one, every epoch would draw a number from the generator that dropout draws from.
            "generator": torch.Generator(),
            "pin_memory": torch.cuda.is_available(),
        }


class Loader(ABC):
    """What a trainer iterates over, once for each epoch."""

    waited = 0.0  # seconds that somebody wanted a batch and had none

    @abstractmethod
    def batches(self) -> Iterator[Batch]:
        """Of one epoch, from the place on."""

    def __iter__(self) -> Iterator[Batch]:
        """Nothing is asked or started before the first batch is wanted: only then the trainer knows its place."""
        began = time.perf_counter()
        for batch in self.batches():
            self.waited += time.perf_counter() - began
            yield batch
            began = time.perf_counter()


def leave_signals_to_the_parent(_: int) -> None:
    """Ctrl-C and schedulers reach whole groups of processes; a run whose workers died could not be saved any more."""
    os.setpgrp()


def too_few(size: int, batch_size: int) -> str:
    return f"there are {size} images, not enough for a batch of data.batch_size={batch_size}"
