"""What the trainer costs: a run of `lambdanets train` against a bare loop over the same network and batches."""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from lambdanets.bench.job import Job, Row, Track

WARM = 2  # batches of a round that are not timed


@dataclass(frozen=True)
class Settings:
    rounds: int = 5
    steps: int = 30
    quick: bool = False


@dataclass(frozen=True)
class Case:
    recipe: str
    image: tuple[int, ...]


CASES = (Case("digits", (8, 8)), Case("fashion-mnist", (28, 28)), Case("cifar10", (32, 32, 3)))


def jobs(settings: Settings) -> list[Job]:
    return [job(case, settings) for case in (CASES[:1] if settings.quick else CASES)]


def job(case: Case, settings: Settings) -> Job:
    def run(track: Track) -> Row:
        best = {"bare": float("inf"), "train": float("inf")}
        with tempfile.TemporaryDirectory() as name:
            config = configuration(case, settings.steps, Path(name))
            for number in track(range(settings.rounds)):
                best["bare"] = min(best["bare"], bare_loop(config))
                best["train"] = min(best["train"], trained(config, Path(name) / f"run-{number}"))
        images = config.data.batch_size
        return {
            "case": case.recipe,
            "batch_size": images,
            "images_per_second": {who: images / seconds for who, seconds in best.items()},
            "ratio": best["bare"] / best["train"],
        }

    return Job(case.recipe, settings.rounds, run)


def configuration(case: Case, steps: int, folder: Path) -> Any:
    """The recipe on made-up images, one epoch of so many steps."""
    from lambdanets.data import open_data
    from lambdanets.train.assemble import complete
    from lambdanets.train.resolve import resolve

    batch = resolve(case.recipe).data.batch_size
    random = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for split, count in (("train", batch * (steps + WARM)), ("test", batch)):
        arrays[f"x_{split}"] = random.integers(256, size=(count, *case.image), dtype=np.uint8)
        arrays[f"y_{split}"] = np.arange(count) % 10
    np.savez(folder / "images.npz", **arrays)
    changes = (
        "data.source=npz",
        f"data.root={folder / 'images.npz'}",
        "trainer.max_epochs=1",
        "trainer.accelerator=cpu",
    )
    config = resolve(case.recipe, changes)
    return complete(config, open_data(config.data))


def bare_loop(config: Any) -> float:
    """Seconds per step of what nobody can leave out."""
    from lambdanets.data import open_data
    from lambdanets.train.assemble import make_classifier

    data = open_data(config.data)
    torch.manual_seed(config.seed)
    classifier = make_classifier(config, data)
    optimizer = classifier.configure_optimizers()["optimizer"]
    began, steps = 0.0, 0
    for number, batch in enumerate(data.training_loader(config.data.image_size)):
        if number == WARM:
            began = time.perf_counter()
        optimizer.zero_grad()
        scores = classifier.model(classifier.prepare(batch.images))
        cross_entropy(scores, batch.labels, label_smoothing=config.optim.label_smoothing).backward()
        optimizer.step()
        steps = number + 1
    return (time.perf_counter() - began) / (steps - WARM)


def trained(config: Any, folder: Path) -> float:
    """Seconds per step of a run with all that belongs to it: averages, guard, records, progress."""
    from lightning.pytorch import Callback

    from lambdanets.train.folder import RunFolder
    from lambdanets.train.run import train

    class Clock(Callback):
        began = ended = 0.0
        steps = 0

        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, number: int) -> None:
            if number == WARM:
                self.began = time.perf_counter()

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, number: int) -> None:
            self.ended, self.steps = time.perf_counter(), number + 1

    clock = Clock()
    train(config, RunFolder(folder), callbacks=[clock])
    return (clock.ended - clock.began) / (clock.steps - WARM)
