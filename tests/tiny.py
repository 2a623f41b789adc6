"""A run of a second."""

import os
import signal

from lightning.pytorch import Callback

from lambdanets.train.config import RunConfig
from lambdanets.train.resolve import resolve

TINY = (
    "model.width=4",
    "model.h=2",
    "model.k=4",
    "data.limit=128",
    "data.batch_size=32",
    "trainer.max_epochs=2",
    "trainer.accelerator=cpu",
    "optim.warmup_epochs=0.5",
)


def tiny(*changes: str, recipe: str = "digits") -> RunConfig:
    return resolve(recipe, [*TINY, *changes])


class Stop(Callback):
    """Asks the run to end, as a user does."""

    def __init__(self, after: int) -> None:
        self.after = after

    def on_train_batch_end(self, trainer, module, outputs, batch, index) -> None:
        if index + 1 == self.after:
            os.kill(os.getpid(), signal.SIGINT)
