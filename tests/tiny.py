"""A run of a second."""

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
