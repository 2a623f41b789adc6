"""Save checkpoints during a run, and stop it on a signal."""

import signal
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from lambdanets.compat import is_accumulating
from lambdanets.train import checkpoints


class StoppedError(Exception):
    """A signal stopped the run, which can be resumed from the checkpoint that was saved."""

    def __init__(self, number: int, path: Path) -> None:
        super().__init__(
            f"stopped by {signal.Signals(number).name}, saved as {path}; "
            f"resume with lambdanets train --resume {path.parent.parent}"
        )
        self.exit_code = 128 + number


class Checkpointing(Callback):
    """Saves at the end of every epoch and, within one, whenever `seconds` have passed.

    SIGINT and SIGTERM save after the current step and stop the run; a second signal stops it at once.
    """

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds
        self.signal: int | None = None
        self.saved_at = time.monotonic()
        self.saved_step = -1

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self.saved_step = checkpoint["global_step"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Replace Lightning's signal handlers, which do not save. Lightning restores the previous ones at the end."""
        if threading.current_thread() is threading.main_thread():  # other threads cannot set handlers
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, self.on_signal)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        signal.signal(number, signal.SIG_DFL)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *rest: Any) -> None:
        # After an epoch's last batch comes its end, which is a better place to resume from: it includes the validation.
        if is_accumulating(trainer) or trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:
            return
        if any(self.decide(trainer)):
            self.save(trainer)
        self.stop_if_requested()

    def on_validation_batch_end(self, trainer: Trainer, *rest: Any) -> None:
        # A run that was resumed here is saved already, and Lightning has counted the epoch as done.
        must_stop, _ = self.decide(trainer)
        if must_stop and self.saved_step != trainer.global_step:
            trainer.fit_loop.epoch_loop.val_loop.batch_progress.reset()  # a resumed run validates from the start
            self.save(trainer)
        self.stop_if_requested()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.save(trainer)
        if trainer.current_epoch + 1 < (trainer.max_epochs or 0):
            self.stop_if_requested()

    def decide(self, trainer: Trainer) -> tuple[bool, bool]:
        """Whether any process must stop, and whether it is time to save, in one exchange between all processes."""
        must_stop, is_time = self.signal is not None, time.monotonic() - self.saved_at >= self.seconds
        if trainer.world_size > 1:
            votes = torch.tensor([must_stop, is_time], dtype=torch.int32, device=trainer.strategy.root_device)
            must_stop, is_time = (votes > 0 for votes in trainer.strategy.reduce(votes, reduce_op="sum").tolist())
        if must_stop:
            self.signal = self.signal or signal.SIGTERM
        return must_stop, is_time

    def save(self, trainer: Trainer) -> None:
        path = checkpoints.path_for(self.folder, trainer.global_step)
        trainer.save_checkpoint(path, weights_only=False)
        if trainer.is_global_zero:
            checkpoints.remove_old(self.folder, path)
        self.saved_at, self.saved_step = time.monotonic(), trainer.global_step

    def stop_if_requested(self) -> None:
        if self.signal is not None:
            raise StoppedError(self.signal, checkpoints.path_for(self.folder, self.saved_step))
