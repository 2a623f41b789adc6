"""Tell damaged checkpoints from errors of the run."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer

from lambdanets.models.fill import reason_of
from lambdanets.train.checkpoints import DamagedCheckpointError


class FirstStep(Callback):
    """Notes that a run got as far as its first step; the last callback, behind all that load their states."""

    def __init__(self) -> None:
        self.is_done = False

    def on_train_batch_start(self, trainer: Trainer, *rest: Any) -> None:
        self.is_done = True

    @contextmanager
    def or_damaged(self, path: Path | None) -> Iterator[None]:
        """A checkpoint can have its hash and still lack what Lightning reads from it, which raises anything then."""
        try:
            yield
        except Exception as error:
            is_pythons = type(error).__module__ == "builtins"  # others say themselves what they are about
            if path is None or self.is_done or not is_pythons:
                raise
            told = f"it has no {error}" if isinstance(error, KeyError) else reason_of(error)
            raise DamagedCheckpointError(f"{path} is not a checkpoint of this run: {told}") from error
