"""Streams do not know how long they are, and processes that work together must all have as many batches."""

from collections.abc import Iterator

import torch
from torch import distributed

from lambdanets.data import PADDING, Batch, Loader


class InStep(Loader):
    """As many batches as the process with the most has: the others get some more that count for nothing."""

    def __init__(self, loader: Loader, channels: int, size: int) -> None:
        self.loader = loader
        nothing = torch.zeros(1, channels, size, size, dtype=torch.uint8)
        self.filling = Batch(nothing, torch.tensor([PADDING]), ["padding"], [])

    def batches(self) -> Iterator[Batch]:
        own = self.loader.batches()
        while True:
            batch = next(own, None)
            everybodys = [False] * distributed.get_world_size()
            distributed.all_gather_object(everybodys, batch is not None)
            if not any(everybodys):
                return
            yield self.filling if batch is None else batch
