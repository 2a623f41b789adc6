"""Checkpoints while a run goes on, and its end when somebody asks for it."""

import signal
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.plugins.io import CheckpointIO
from torch import Tensor, distributed

from lambdanets.train import checkpoints


class StoppedError(Exception):
    """A signal ended the run, which can go on from where it was saved."""

    def __init__(self, number: int, path: Path) -> None:
        super().__init__(
            f"stopped by {signal.Signals(number).name}, saved as {path}; "
            f"go on with lambdanets train --resume {path.parent.parent}"
        )
        self.exit_code = 128 + number


class Files(CheckpointIO):
    """How Lightning's own commands write and read a checkpoint."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        checkpoints.save(checkpoint, Path(path))

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        return checkpoints.load(Path(path))

    def remove_checkpoint(self, path: Any) -> None:
        checkpoints.remove(Path(path))


class Keeper(Callback):
    """Saves at the end of every epoch and, within one, whenever `seconds` have passed.

    SIGINT and SIGTERM save after the step that is under way and end the run; a second one ends it at once.
    """

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds
        self.signal: int | None = None
        self.saved_at = time.monotonic()
        self.saved_step = -1

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self.saved_step = checkpoint["global_step"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Instead of Lightning's own handlers, which would end the run without saving; it puts back what was before."""
        if threading.current_thread() is threading.main_thread():  # no other may
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, self.note)

    def note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        signal.signal(number, signal.SIG_DFL)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *rest: Any) -> None:
        loop = trainer.fit_loop.epoch_loop
        # At an epoch's last batch its end is near, and a better place to go on from: the one with its validation.
        if loop._should_accumulate() or loop.batch_progress.is_last_batch:
            return
        if any(self.wishes(trainer)):
            self.save(trainer)
        self.stop_if_asked()

    def on_validation_batch_end(self, trainer: Trainer, *rest: Any) -> None:
        # A run that goes on from here is saved already, and by now Lightning has counted the epoch as done.
        must_stop, _ = self.wishes(trainer)
        if must_stop and self.saved_step != trainer.global_step:
            trainer.fit_loop.epoch_loop.val_loop.batch_progress.reset()  # all of it again when the run goes on
            self.save(trainer)
        self.stop_if_asked()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.save(trainer)
        if trainer.current_epoch + 1 < (trainer.max_epochs or 0):
            self.stop_if_asked()

    def wishes(self, trainer: Trainer) -> tuple[bool, bool]:
        """Has any process got a signal, and is it time to save? Of all processes together, in one exchange."""
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

    def stop_if_asked(self) -> None:
        if self.signal is not None:
            raise StoppedError(self.signal, checkpoints.path_for(self.folder, self.saved_step))


class RandomStates(Callback):
    """torch's generators of every process, as they were: dropout and mixing go on as they would have.

    They come back at the last moment, for starting up draws numbers too. Nothing here draws from others: images are
    changed by seeds of their own.
    """

    def __init__(self) -> None:
        self.wanted: list[dict[str, Tensor]] | None = None

    def state_dict(self) -> dict[str, Any]:
        if self.wanted is not None:  # nothing was drawn since they were read
            return {"of_rank": self.wanted}
        own = {"torch": torch.get_rng_state()}
        if torch.cuda.is_available():
            own["cuda"] = torch.cuda.get_rng_state()
        if not distributed.is_available() or not distributed.is_initialized():
            return {"of_rank": [own]}
        everybodys: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(everybodys, own)
        return {"of_rank": everybodys}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.wanted = state_dict["of_rank"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """All processes had one seed, for they had to begin with the same weights."""
        if trainer.global_rank:
            torch.manual_seed(torch.initial_seed() + trainer.global_rank)

    def on_train_batch_start(self, trainer: Trainer, *rest: Any) -> None:
        of_rank, self.wanted = self.wanted, None
        if of_rank is None or trainer.world_size != len(of_rank):  # other processes than those have their own
            return
        own = of_rank[trainer.global_rank]
        torch.set_rng_state(own["torch"])
        if "cuda" in own:
            torch.cuda.set_rng_state(own["cuda"])
