"""Overhead of the trainer: `lambdanets train` against a bare loop over the same network and batches.

The two alternate step by step, so that other load on the machine affects both.
"""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from lambdanets.bench.job import Job, Row, Track

WARM = 2  # warm-up batches of a round, which are not timed


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
        times: dict[str, list[float]] = {"bare": [], "train": []}
        with tempfile.TemporaryDirectory() as name:
            config = configuration(case, settings.steps, Path(name))
            for number in track(range(settings.rounds)):
                for who, seconds in in_turns(config, Path(name) / f"run-{number}").items():
                    times[who] += seconds[WARM:]
        usual = {who: mean(seconds) for who, seconds in times.items()}
        images = config.data.batch_size
        return {
            "case": case.recipe,
            "batch_size": images,
            "images_per_second": {who: images / seconds for who, seconds in usual.items()},
            "ratio": usual["bare"] / usual["train"],
        }

    return Job(case.recipe, settings.rounds, run)


def configuration(case: Case, steps: int, folder: Path) -> Any:
    """The recipe on random images, for one epoch of `steps` steps."""
    from lambdanets.runs import resolve
    from lambdanets.runs.assembly import completed

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
    return completed(resolve(case.recipe, changes))


def bare_loop(config: Any) -> Iterator[None]:
    """A minimal training loop that yields after each step."""
    from lambdanets.runs.assembly import assemble

    _, task, data, learner = assemble(config)
    optimizer = learner.configure_optimizers()["optimizer"]
    yield  # set-up is done
    for batch in data.training_loader():
        optimizer.zero_grad()
        loss = task.loss(learner.model, batch)
        (loss.total / loss.weight).backward()
        optimizer.step()
        yield


def in_turns(config: Any, folder: Path) -> dict[str, list[float]]:
    """Seconds of each step of the bare loop and of a complete run, with averages, guard and metrics."""
    from lightning.pytorch import Callback

    from lambdanets.runs import RunFolder, train

    class Turns(Callback):
        """Runs a step of the bare loop after each step of the run."""

        def __init__(self) -> None:
            self.bare = bare_loop(config)
            next(self.bare)
            self.times: dict[str, list[float]] = {"bare": [], "train": []}
            self.began = time.perf_counter()

        def on_train_batch_end(self, *_: Any) -> None:
            ended = time.perf_counter()
            next(self.bare)
            now = time.perf_counter()
            self.times["train"].append(ended - self.began)
            self.times["bare"].append(now - ended)
            self.began = now

    turns = Turns()
    train(config, RunFolder(folder), callbacks=[turns])
    return turns.times
