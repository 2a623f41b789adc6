"""What a run says about itself while it goes on: a row for each epoch, and curves for TensorBoard."""

import csv
import io
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from lambdanets.data import Batch, Loader
from lambdanets.files import write_atomically
from lambdanets.train.classifier import Classifier
from lambdanets.train.strategies import mean_of_processes

Row = dict[str, float | int]


@dataclass
class Sums:
    """Of an epoch so far."""

    images: int = 0
    batches: int = 0  # with a finite loss
    loss: float = 0.0
    training: float = 0.0  # seconds, with the waiting
    waiting: float = 0.0


class History(Callback):
    """`metrics.csv`, a row for each epoch. Checkpoints have it too, so that a resumed run continues its own."""

    def __init__(self, file: Path, every: int) -> None:
        """`every`: steps between points of TensorBoard's curves."""
        self.file, self.every = file, every
        self.rows: list[Row] = []
        self.sums = Sums()
        self.clock = 0.0
        self.waited = 0.0
        self.is_validated = False

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, "sums": asdict(self.sums) | {"loss": mean_of_processes(self.sums.loss)}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows, self.sums = state_dict["rows"], Sums(**state_dict["sums"])

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.clock, self.waited = time.monotonic(), 0.0

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.sums = Sums()
        self.clock = time.monotonic()
        self.is_validated = False

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.is_validated = True

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        loss = float(outputs["loss"]) * trainer.accumulate_grad_batches  # by which Lightning has divided it
        now, waited = time.monotonic(), waited_by(trainer.train_dataloader)
        self.sums.images += len(batch.labels) * trainer.world_size
        if math.isfinite(loss):  # the guard tells of others
            self.sums.batches += 1
            self.sums.loss += loss
        self.sums.training += now - self.clock
        self.sums.waiting += waited - self.waited
        self.clock, self.waited = now, waited
        if trainer.global_step % self.every == 0:
            log(trainer, {"train_loss": loss, "lr": learning_rate(trainer)})

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self.is_validated:
            validate_if_due(trainer)
        assert isinstance(pl_module, Classifier)
        sums = self.sums
        row = {
            "epoch": trainer.current_epoch + 1,
            "step": trainer.global_step,
            "lr": learning_rate(trainer),
            "train_loss": mean_of_processes(sums.loss / max(1, sums.batches)),
            **(pl_module.figures if self.is_validated else {}),
            "images_per_second": round(sums.images / max(sums.training, 1e-9), 2),
            "waiting_share": round(sums.waiting / max(sums.training, 1e-9), 4),
            "seconds": round(sums.training, 2),
        }
        self.rows.append(row)
        if trainer.is_global_zero:
            write_rows(self.file, self.rows)
        log(trainer, {name: value for name, value in row.items() if name not in ("epoch", "step", "train_loss", "lr")})


def validate_if_due(trainer: Trainer) -> None:
    """A run that was stopped while it validated goes on at the end of that epoch; Lightning leaves the rest out.

    It does so too where `max_steps` ends an epoch early.
    """
    loop = trainer.fit_loop.epoch_loop
    if loop._should_check_val_epoch():
        trainer.validating = True
        loop.val_loop.run()
        trainer.training = True


def write_rows(file: Path, rows: list[Row]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list({name: None for row in rows for name in row}))
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(file, text.getvalue().encode())


def log(trainer: Trainer, values: Row) -> None:
    if trainer.logger is not None:
        trainer.logger.log_metrics(values, trainer.global_step)


def learning_rate(trainer: Trainer) -> float:
    rate: float = trainer.optimizers[0].param_groups[0]["lr"]
    return rate


def waited_by(loader: object) -> float:
    return loader.waited if isinstance(loader, Loader) else 0.0
