"""Tell damaged checkpoints from errors of the run."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer

from lambdanets.models.fill import reason_of
from lambdanets.train.checkpoints import DamagedCheckpointError


class FirstStep(Callback):
    """Records that a run has reached its first step. It is the last callback, after all that restore their states."""

    def __init__(self) -> None:
        self.is_done = False

    def on_train_batch_start(self, trainer: Trainer, *rest: Any) -> None:
        self.is_done = True

    @contextmanager
    def or_damaged(self, path: Path | None) -> Iterator[None]:
        """Raise DamagedCheckpointError if restoring fails: a checkpoint with a valid hash can still be incomplete."""
        try:
            yield
        except Exception as error:
            is_pythons = type(error).__module__ == "builtins"  # errors of libraries have their own messages
            if path is None or self.is_done or not is_pythons:
                raise
            reason = f"it has no {error}" if isinstance(error, KeyError) else reason_of(error)
            raise DamagedCheckpointError(f"{path} is not a checkpoint of this run: {reason}") from error
