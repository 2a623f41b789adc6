"""Loaders whose order depends only on the seed, the epoch and the position in it.

A resumed run therefore continues its epoch exactly, without saved states of workers or shuffles. All processes use the
same order, and each takes its share of every batch, so the order does not depend on their number.
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
    """The position in a run to start from."""

    epoch: int = 0
    batch: int = 0


class Share(NamedTuple):
    """The rank of this process, and the number of processes."""

    rank: int = 0
    world: int = 1


@dataclass(frozen=True, kw_only=True)
class LoaderOptions:
    """Options that all loaders share."""

    to_example: ToExample
    collate: Collate
    batch_size: int  # over all processes
    seed: int = 0
    workers: int = 0
    share: Share = field(default_factory=Share)
    position: Callable[[], Position] = Position  # called when the first batch of an epoch is needed
    items: str = "items"  # their name in messages

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
            # By default, every epoch would draw from the generator that dropout uses.
            "generator": torch.Generator(),
            "pin_memory": torch.cuda.is_available(),
        }

    def too_few(self, size: int) -> str:
        return f"{size} {self.items} are not enough for a batch of data.batch_size={self.batch_size}"


class Loader(ABC):
    """An iterable over the batches of an epoch."""

    waited = 0.0  # seconds spent waiting for batches

    @abstractmethod
    def batches(self) -> Iterator[Batch]:
        """The batches of one epoch, from the position on."""

    def __iter__(self) -> Iterator[Batch]:
        """Lazy, because the position is known only when the first batch is needed."""
        began = time.perf_counter()
        for batch in self.batches():
            self.waited += time.perf_counter() - began
            yield batch
            began = time.perf_counter()


def ignore_signals(_: int) -> None:
    """Keep workers alive when Ctrl-C or a scheduler signals the process group, so that the run can be saved."""
    os.setpgrp()
