"""From items to batches: read items, make examples, collate them, and skip unreadable items."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from lambdanets.compat import map_tensors
from lambdanets.data.seeds import seeded
from lambdanets.data.splits import BadItemError, Item


class Skip(NamedTuple):
    """An item that was skipped."""

    name: str
    reason: str


class Prepared(NamedTuple):
    """An example of a task, ready to be collated."""

    name: str
    example: Any
    is_valid: bool = True  # False for padding examples


@dataclass(kw_only=True)  # not frozen: Lightning could not convert it for double precision
class Batch:
    """The tensors of a task, and what every batch has."""

    inputs: Any  # a tree of tensors, with the targets
    counts: list[int]  # units of each example: 1 for an image, the number of its tokens for a text
    units: int = 0  # of the valid examples together
    names: list[str] = field(default_factory=list)
    skipped: list[Skip] = field(default_factory=list)
    valid: Bool[Tensor, "b"] = field(default_factory=lambda: torch.ones(0, dtype=torch.bool))

    def to(self, device: torch.device) -> "Batch":
        def move(tensor: Tensor) -> Tensor:
            return tensor.to(device, non_blocking=device.type == "cuda")

        return replace(self, inputs=map_tensors(move, self.inputs), valid=move(self.valid))

    def pin_memory(self) -> "Batch":
        """Pin all tensors; called by torch's DataLoader."""
        return replace(self, inputs=map_tensors(Tensor.pin_memory, self.inputs), valid=self.valid.pin_memory())


ToExample = Callable[[Any], Any]  # from what an item reads to an example of the task
Collate = Callable[[Sequence[Any]], Batch]  # from examples, perhaps none, to a batch


def prepare(item: Item, to_example: ToExample, *seed: int) -> Prepared | Skip:
    try:
        return Prepared(item.name, seeded(to_example, item.read(), *seed))
    except BadItemError as bad:
        return Skip(bad.name, bad.reason)


class CollateReadable(NamedTuple):
    """Collates readable items and lists the others as skipped."""

    collate: Collate

    def __call__(self, items: Sequence[Prepared | Skip]) -> Batch:
        readable = [item for item in items if isinstance(item, Prepared)]
        batch = self.collate([item.example for item in readable])
        return replace(
            batch,
            units=sum(count for count, item in zip(batch.counts, readable, strict=True) if item.is_valid),
            names=[item.name for item in readable],
            skipped=[item for item in items if isinstance(item, Skip)],
            valid=torch.tensor([item.is_valid for item in readable], dtype=torch.bool),
        )
