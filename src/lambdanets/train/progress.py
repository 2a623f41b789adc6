"""Progress of a run: a bar on terminals, and a line for each epoch."""

import time
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

from lambdanets.train.history import History
from lambdanets.train.learner import Learner


class ProgressBar(Callback):
    """Shows speed, loss and the estimated end of the run."""

    def __init__(self, history: History, console: Console) -> None:
        self.history, self.console = history, console
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[state]}"),
        )
        self.bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.task: TaskID | None = None
        self.began = self.first = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, Learner)
        steps = pl_module.steps.run
        self.task = self.bar.add_task("training", total=steps, completed=trainer.global_step, state="")
        self.began, self.first = time.monotonic(), trainer.global_step
        self.bar.start()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.bar.disable:
            return
        assert self.task is not None
        assert isinstance(pl_module, Learner)
        sums = self.history.sums
        done, left = trainer.global_step - self.first, pl_module.steps.run - trainer.global_step
        end = time.localtime(time.time() + left * (time.monotonic() - self.began) / max(1, done))
        state = (
            f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}  loss {sums.losses()['train_loss']:.3f}  "
            f"{trainer.world_size * sums.units / sums.training:,.0f} {pl_module.task.unit}/s  "
            f"ends {time.strftime('%a %H:%M:%S', end)}"
        )
        self.bar.update(self.task, completed=trainer.global_step, state=state)

    def describe(self, activity: str) -> None:
        if self.task is not None:
            self.bar.update(self.task, description=activity)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.describe("validating")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.describe("training")

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, Learner)
        row = self.history.rows[-1]
        parts = [f"epoch {row['epoch']}/{trainer.max_epochs}", f"loss {row['train_loss']:.3f}"]
        score = pl_module.task.score
        validated = [f"loss {row['val_loss']:.3f}"] if "val_loss" in row else []
        if score.column in row:
            validated.append(f"{score.label} {score.show(row[score.column])}")
        if validated:
            parts.append(f"validation {', '.join(validated)}")
        rate = row[self.history.rate]
        parts.append(f"{rate:,.0f} {pl_module.task.unit}/s, {row['waiting_share']:.0%} waiting for data")
        self.console.print("  ".join(parts), highlight=False, soft_wrap=True, markup=False)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.bar.stop()
