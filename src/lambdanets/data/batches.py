"""From examples to batches: changed, stacked, and without the images that cannot be read."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from lambdanets.data.splits import BadImageError, Example
from lambdanets.data.transforms import Transform, seeded

PADDING = -1  # the label of an image that is there to fill a batch, and counts for nothing


class Skip(NamedTuple):
    """An image that was left out."""

    name: str
    reason: str


class Ready(NamedTuple):
    """An image as the network will see it, but for its normalisation."""

    image: UInt8[Tensor, "c s s"]
    label: int
    name: str


class Batch(NamedTuple):
    images: UInt8[Tensor, "b c s s"]
    labels: Int64[Tensor, "b"]
    names: list[str]
    skipped: list[Skip]


def prepare(example: Example, transform: Transform, *seed: int) -> Ready | Skip:
    try:
        image = example.read()
    except BadImageError as bad:
        return Skip(bad.name, bad.reason)
    return Ready(seeded(transform, image, *seed), example.label, example.name)


class Collate:
    """Stacks what could be read; a batch of nothing has its shape too."""

    def __init__(self, channels: int, size: int) -> None:
        self.empty = torch.empty(0, channels, size, size, dtype=torch.uint8)

    def __call__(self, items: Sequence[Ready | Skip]) -> Batch:
        ready = [item for item in items if isinstance(item, Ready)]
        return Batch(
            images=torch.stack([r.image for r in ready]) if ready else self.empty,
            labels=torch.tensor([r.label for r in ready], dtype=torch.int64),
            names=[r.name for r in ready],
            skipped=[item for item in items if isinstance(item, Skip)],
        )
