"""Batching: a fixed number of items, or as many as fit a budget of units such as tokens."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Int64
from torch import Tensor

from lambdanets.data.seeds import mixed


@runtime_checkable
class Batching(Protocol):
    """Batches over all processes. Their content depends on the arguments only."""

    def count(self, items: int, *, shuffle: bool) -> int:
        """Batches in an epoch, the same in every epoch."""

    def batches(self, items: int, *, shuffle: bool, seed: int, epoch: int, first: int) -> Iterator[list[int]]:
        """Indices of the items in each batch of an epoch, from batch `first` on."""


@dataclass(frozen=True)
class FixedSize:
    """A fixed number of items. Shuffled epochs drop the last, smaller batch.

    >>> list(FixedSize(4).batches(10, shuffle=False, seed=0, epoch=0, first=1))
    [[4, 5, 6, 7], [8, 9]]
    """

    size: int

    def count(self, items: int, *, shuffle: bool) -> int:
        return items // self.size if shuffle else -(-items // self.size)

    def batches(self, items: int, *, shuffle: bool, seed: int, epoch: int, first: int) -> Iterator[list[int]]:
        order = permutation(items, seed, epoch) if shuffle else torch.arange(items)
        for batch in range(first, self.count(items, shuffle=shuffle)):
            yield order[batch * self.size :][: self.size].tolist()


@dataclass(frozen=True, eq=False)
class UnitBudget:
    """As many items of similar length as fit `budget` when all are padded to the longest; at least one.

    Shuffled epochs permute items of equal length and the order of batches. The lengths in a batch, and so the number of
    batches, are the same in every epoch.

    >>> by_length = UnitBudget(torch.tensor([5, 1, 3, 1, 9]), budget=6)
    >>> list(by_length.batches(5, shuffle=False, seed=0, epoch=0, first=0))
    [[1, 3], [2], [0], [4]]
    """

    lengths: Int64[Tensor, "n"]
    budget: int

    def count(self, items: int, *, shuffle: bool) -> int:
        return len(self.ends())

    def batches(self, items: int, *, shuffle: bool, seed: int, epoch: int, first: int) -> Iterator[list[int]]:
        order = permutation(items, seed, epoch) if shuffle else torch.arange(items)
        order = order[self.lengths[order].argsort(stable=True)]
        batches = order.tensor_split(self.ends()[:-1])
        which = permutation(len(batches), seed, epoch) if shuffle else torch.arange(len(batches))
        for batch in which[first:].tolist():
            yield batches[batch].tolist()

    def ends(self) -> list[int]:
        """The ends of the batches in the order of lengths."""
        ends: list[int] = []
        begin = 0
        for place, length in enumerate(self.lengths.sort().values.tolist()):
            if place > begin and (place + 1 - begin) * length > self.budget:
                ends.append(place)
                begin = place
        return [*ends, len(self.lengths)]


def permutation(size: int, seed: int, epoch: int) -> Int64[Tensor, "n"]:
    return torch.randperm(size, generator=torch.Generator().manual_seed(mixed(seed, epoch)))
