"""Equal numbers of batches in all processes, for streams of unknown length."""

from collections.abc import Iterator

from torch import distributed

from lambdanets.data import Batch, Loader


class Lockstep(Loader):
    """Gives every process as many batches as the process with the most; fillers do not count in any metric."""

    def __init__(self, loader: Loader, filler: Batch) -> None:
        self.loader, self.filler = loader, filler

    def batches(self) -> Iterator[Batch]:
        own = self.loader.batches()
        while True:
            batch = next(own, None)
            have_one = [False] * distributed.get_world_size()
            distributed.all_gather_object(have_one, batch is not None)
            if not any(have_one):
                return
            yield self.filler if batch is None else batch
