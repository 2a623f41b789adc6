"""A run of a second."""

import os
import signal
from dataclasses import replace

from lightning.pytorch import Callback

from lambdanets.data import Data
from lambdanets.data.images import ImageDataConfig
from lambdanets.runs import resolve
from lambdanets.tasks.classification import Classification
from lambdanets.train.config import RunConfig

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


def image_data(config: ImageDataConfig, size: int) -> Data:
    """Images as batches of the classification task."""
    run = replace(resolve("digits"), data=replace(config, image_size=size, mean=(0.5,), std=(0.5,)))
    splits = Classification.open(run)
    return Classification.create(run, splits).data(run, splits)


class Stop(Callback):
    """Asks the run to end, as a user does."""

    def __init__(self, after: int) -> None:
        self.after = after

    def on_train_batch_end(self, trainer, module, outputs, batch, index) -> None:
        if index + 1 == self.after:
            os.kill(os.getpid(), signal.SIGINT)
