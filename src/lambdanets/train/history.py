"""Metrics of a run: a row of metrics.csv for each epoch, and curves for TensorBoard."""

import csv
import io
import math
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from lambdanets.compat import is_validation_due
from lambdanets.data import Batch, Loader
from lambdanets.files import write_atomically
from lambdanets.train.learner import TINY, Learner
from lambdanets.train.strategies import sum_over_processes
from lambdanets.train.task import Loss

MetricsRow = dict[str, float | int]


@dataclass
class Sums:
    """Sums over an epoch so far, in this process."""

    units: int = 0
    loss: float = 0.0
    weight: float = 0.0  # of batches whose loss is finite
    parts: dict[str, float] = field(default_factory=dict)
    training: float = 0.0  # seconds, including the waiting
    waiting: float = 0.0

    def add(self, loss: Loss) -> None:
        total = float(loss.total)
        if not math.isfinite(total):  # the guard reports these
            return
        self.loss += total
        self.weight += float(loss.weight)
        for name, part in loss.parts.items():
            self.parts[name] = self.parts.get(name, 0.0) + float(part)

    def of_all_processes(self) -> "Sums":
        own = {"units": self.units, "loss": self.loss, "weight": self.weight}
        summed = sum_over_processes(own | {f"part {name}": part for name, part in self.parts.items()})
        parts = {name.removeprefix("part "): summed[name] for name in sorted(summed) if name not in own}
        return replace(self, units=int(summed["units"]), loss=summed["loss"], weight=summed["weight"], parts=parts)

    def losses(self) -> MetricsRow:
        """Mean losses by column."""
        sums = {"train_loss": self.loss} | {f"train_{name}": part for name, part in self.parts.items()}
        return {name: total / self.weight if self.weight else 0.0 for name, total in sums.items()}


def sums_from(state: dict[str, Any]) -> Sums:
    """Restore sums, also from checkpoints of versions that counted images and averaged over batches."""
    if "batches" in state:
        state = dict(state)
        images, batches = state.pop("images"), state.pop("batches")
        state |= {"units": images, "weight": float(images), "loss": state["loss"] * images / max(1, batches)}
    return Sums(**state)


class History(Callback):
    """Writes `metrics.csv`, a row for each epoch. The rows are part of checkpoints, so a resumed run continues them."""

    state_key = "History"

    def __init__(self, file: Path, every: int, unit: str) -> None:
        """`every`: steps between points of TensorBoard's curves."""
        self.file, self.every, self.rate = file, every, f"{unit}_per_second"
        self.rows: list[MetricsRow] = []
        self.sums = Sums()
        self.clock = 0.0
        self.waited = 0.0
        self.is_validated = False

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, "sums": asdict(self.sums.of_all_processes())}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows, self.sums = state_dict["rows"], sums_from(state_dict["sums"])

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.clock, self.waited = time.monotonic(), 0.0
        if not trainer.is_global_zero:  # the sums of a checkpoint are of all processes
            self.sums = Sums(training=self.sums.training, waiting=self.sums.waiting)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.sums = Sums()
        self.clock = time.monotonic()
        self.is_validated = False

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.is_validated = True

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, Learner)
        assert pl_module.last_loss is not None
        now, waited = time.monotonic(), waited_by(trainer.train_dataloader)
        self.sums.units += batch.units
        self.sums.add(pl_module.last_loss)
        self.sums.training += now - self.clock
        self.sums.waiting += waited - self.waited
        self.clock, self.waited = now, waited
        if trainer.global_step % self.every == 0:
            loss = float(pl_module.last_loss.total) / max(pl_module.last_loss.weight, TINY)
            log(trainer, {"train_loss": loss, "lr": learning_rate(trainer)})

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self.is_validated:
            validate_if_due(trainer)
        assert isinstance(pl_module, Learner)
        sums = self.sums.of_all_processes()
        row = {
            "epoch": trainer.current_epoch + 1,
            "step": trainer.global_step,
            "lr": learning_rate(trainer),
            **sums.losses(),
            **(pl_module.figures if self.is_validated else {}),
            self.rate: round(sums.units / max(sums.training, 1e-9), 2),
            "waiting_share": round(sums.waiting / max(sums.training, 1e-9), 4),
            "seconds": round(sums.training, 2),
        }
        self.rows.append(row)
        if trainer.is_global_zero:
            write_rows(self.file, self.rows)
        log(trainer, {name: value for name, value in row.items() if name not in ("epoch", "step", "train_loss", "lr")})

    def totals(self) -> dict[str, Any]:
        """Totals over all epochs, as in run.json."""
        seconds = sum(row["seconds"] for row in self.rows)
        units = sum(row["seconds"] * row[self.rate] for row in self.rows)
        waiting = sum(row["seconds"] * row["waiting_share"] for row in self.rows)
        return {
            "epochs": len(self.rows),
            "seconds": round(seconds, 1),
            "units_per_second": round(units / max(seconds, 1e-9), 1),
            "waiting_share": round(waiting / max(seconds, 1e-9), 4),
        }


def validate_if_due(trainer: Trainer) -> None:
    """A run stopped during validation resumes at the end of that epoch, where Lightning would not validate.

    Nor would it where `max_steps` ends an epoch early.
    """
    if is_validation_due(trainer):
        trainer.validating = True
        trainer.fit_loop.epoch_loop.val_loop.run()
        trainer.training = True


def write_rows(file: Path, rows: list[MetricsRow]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list({name: None for row in rows for name in row}))
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(file, text.getvalue().encode())


def log(trainer: Trainer, values: MetricsRow) -> None:
    if trainer.logger is not None:
        trainer.logger.log_metrics(values, trainer.global_step)


def learning_rate(trainer: Trainer) -> float:
    rate: float = trainer.optimizers[0].param_groups[0]["lr"]
    return rate


def waited_by(loader: object) -> float:
    return loader.waited if isinstance(loader, Loader) else 0.0
