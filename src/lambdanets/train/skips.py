"""Skipped items: unreadable ones are listed in a file, and too many of them end the run."""

import csv
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from lambdanets.data import Batch, DataError, Skip, Splits
from lambdanets.files import open_regular

MOST = 0.01  # of the items of an epoch, with its validation, in all processes together
FEW = 3  # are tolerated where 1 % is less, if the data can spare them
ENOUGH = 100  # to judge a stream of unknown length by


class Counts(NamedTuple):
    """Numbers of items over all processes."""

    seen: int
    skipped: int


class Skips(Callback):
    """Writes a line of `skipped.csv` for each skipped item."""

    state_key = "Skips"

    def __init__(self, file: Path, splits: Splits, items: str) -> None:
        """`items`: what they are called in messages."""
        self.file, self.total, self.items = file, splits.items, items
        self.few = min(FEW, splits.spare)
        self.trained = self.validated = Counts(0, 0)

    def state_dict(self) -> dict[str, int]:
        """The counts of training. An interrupted validation starts again."""
        return self.trained._asdict()

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.trained = Counts(**state_dict)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.trained = self.validated = Counts(0, 0)

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.validated = Counts(0, 0)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Batch, batch_idx: int) -> None:
        self.trained = self.note(batch, self.trained, self.validated, trainer)
        if not batch.names:
            raise DataError(f"all {self.items} of a batch are unreadable; see {self.file}")

    def on_validation_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Batch, *rest: Any) -> None:
        self.validated = self.note(batch, self.validated, self.trained, trainer)

    def note(self, batch: Batch, before: Counts, others: Counts, trainer: Trainer) -> Counts:
        """The counts with this batch; DataError if too many were skipped."""
        if batch.skipped:
            self.write(batch.skipped)
        now = Counts(len(batch.names) + len(batch.skipped), len(batch.skipped))
        if trainer.world_size > 1:  # all processes have the same number of batches
            counts = torch.tensor(now, device=trainer.strategy.root_device)
            now = Counts(*trainer.strategy.reduce(counts, reduce_op="sum").tolist())
        seen, skipped = (sum(each) for each in zip(now, before, others, strict=True))
        of = max(ENOUGH, seen) if self.total is None else self.total
        if now.skipped and skipped > max(self.few, MOST * of):
            most = f"{MOST:.0%}" if self.few <= MOST * of else f"the {self.few} tolerated in a small data set"
            last = f"; the last is {batch.skipped[-1].name}: {batch.skipped[-1].reason}" if batch.skipped else ""
            raise DataError(f"{skipped} of {of} {self.items} are unreadable, more than {most}; see {self.file}{last}")
        return Counts(now.seen + before.seen, now.skipped + before.skipped)

    def write(self, skips: list[Skip]) -> None:
        # Names in archives may not be valid text.
        with self.file.open("a", newline="", encoding="utf-8", errors="backslashreplace") as file:
            csv.writer(file).writerows(skips)


def count_names(file: Path) -> int:
    """The number of distinct items in `skipped.csv`; several epochs can skip the same item."""
    with open_regular(file) as lines:
        return len({line.partition(b",")[0] for line in lines})
