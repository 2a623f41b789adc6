"""Images that cannot be read are left out, one by one named; too many of them end the run."""

import csv
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from lambdanets.data import Batch, DataError, Skip

MOST = 0.01  # of the images of an epoch
ENOUGH = 100  # to judge a stream by, whose length nobody knows


class Skips(Callback):
    """`skipped.csv` gets a line for each."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.seen = self.skipped = 0

    def state_dict(self) -> dict[str, int]:
        """An epoch that is interrupted is one epoch."""
        return {"seen": self.seen, "skipped": self.skipped}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.seen, self.skipped = state_dict["seen"], state_dict["skipped"]

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.seen = self.skipped = 0

    on_validation_epoch_start = on_train_epoch_start

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Batch, batch_idx: int) -> None:
        self.note(batch, trainer.train_dataloader, trainer)
        if not len(batch.labels):
            raise DataError(f"no image of a batch can be read; {self.file} has their names")

    def on_validation_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Batch, *rest: Any) -> None:
        self.note(batch, trainer.val_dataloaders, trainer)

    def note(self, batch: Batch, loader: Any, trainer: Trainer) -> None:
        self.seen += len(batch.labels) + len(batch.skipped)
        if not batch.skipped:
            return
        self.skipped += len(batch.skipped)
        self.write(batch.skipped)
        size = getattr(loader, "size", None)
        of = size / trainer.world_size if size else max(ENOUGH, self.seen)
        if self.skipped > MOST * of:
            raise DataError(
                f"{self.skipped} of {int(of)} images cannot be read, more than {MOST:.0%}; {self.file} names each; "
                f"the last is {batch.skipped[-1].name}: {batch.skipped[-1].reason}"
            )

    def write(self, skips: list[Skip]) -> None:
        with self.file.open("a", newline="") as file:
            csv.writer(file).writerows(skips)
