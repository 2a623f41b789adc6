#!/usr/bin/env python3
"""Kill training runs, damage their checkpoints, and see whether what goes on is what would have been.

Runs of every recipe, with a small network and small data, are killed at random moments past the start of their second
epoch and go on by --resume; the weights, the optimiser and the metrics that they end with must be those of a run that
nobody killed, bit by bit. Processes that do nothing but save are killed too, checkpoints are damaged, and files that
would run something if they were read as pickles are put in their place. Some of many images are cut short: a run names
each of them, or ends if they are too many.
"""

import argparse
import itertools
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "train"))
from damage import (  # type: ignore[import-not-found]
    MUTATIONS,
    differences,
    example,
    payloads,
    state_of_run,
    write_images,
    write_with_hash,
)

from lambdanets.runs.configs import list_recipes, resolve
from lambdanets.train import checkpoints

# Runs begin as forks of a process that has imported all they need, which takes longer than they do.
PROCESSES = multiprocessing.get_context("forkserver")
PRELOADED = ["lambdanets.cli.main", "lambdanets.runs", "torchvision.transforms.v2", "sklearn.datasets"]
LONGEST = 600.0  # seconds that a run of this size may take on a busy machine
AGAIN = 0.3  # of the runs that go on are killed once more

Tick = Callable[[], None]


@dataclass
class Outcome:
    kind: str
    wanted: int
    done: int = 0
    failures: list[str] = field(default_factory=list)
    notes: dict[str, int] = field(default_factory=dict)

    def note(self, what: str, times: int = 1) -> None:
        self.notes[what] = self.notes.get(what, 0) + times

    def __str__(self) -> str:
        notes = ", ".join(f"{times} {what}" for what, times in self.notes.items())
        return f"{self.kind}: {self.done} of {self.wanted}, {len(self.failures)} failed{notes and f' ({notes})'}"


@dataclass
class Recipe:
    """How a recipe runs here, and how it ended when nobody killed it."""

    name: str
    changes: list[str]
    expected: dict[str, Any]
    seconds: float  # from the start of its second epoch to its end


def make_data(file: Path, channels: int) -> None:
    """Images that are all different, as a run that takes a wrong one must end differently."""
    generator = np.random.default_rng(channels)
    shape = (16, 16) if channels == 1 else (16, 16, channels)
    x_train, x_test = (generator.integers(0, 256, (size, *shape), np.uint8) for size in (68, 24))
    np.savez(file, x_train=x_train, y_train=np.arange(68) % 10, x_test=x_test, y_test=np.arange(24) % 10)


def small(recipe: str, folder: Path) -> list[str]:
    """Changes that leave the rules of a recipe as they are and make it short: 8 steps in each of 4 epochs."""
    config = resolve(recipe)
    channels = len(config.data.mean or (0,))
    make_data(folder / f"{channels}.npz", channels)
    return [
        *("model.blocks=1,1,1,1", "model.placement=LLLL", "model.width=4", "model.h=2", "model.k=4", "model.scope=3"),
        *("data.image_size=16", "data.batch_size=8", f"data.workers={min(1, config.data.workers)}"),
        *("data.source=npz", f"data.root={folder / f'{channels}.npz'}"),
        *("trainer.max_epochs=4", "trainer.accelerator=cpu", "trainer.devices=1", "checkpoint_seconds=0"),
    ]


def command(arguments: list[str], log: Path) -> None:
    """`lambdanets train`, in a process of its own."""
    from lambdanets.cli.main import main

    torch.set_num_threads(1)
    # As in the command: workers that a fork server started would not see that the run which wanted them is dead.
    multiprocessing.set_start_method("fork", force=True)
    with log.open("a") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    main(["train", *arguments])


def start(target: Callable[..., None], *arguments: Any) -> BaseProcess:
    process = PROCESSES.Process(target=target, args=arguments)
    process.start()
    return process


def wait(process: BaseProcess) -> int | None:
    process.join(LONGEST)
    if process.is_alive():
        process.kill()
        process.join()
    return process.exitcode


def wait_for(file: Path, process: BaseProcess) -> None:
    """Until it is there, or will never be."""
    while process.is_alive() and not file.exists():
        time.sleep(0.01)


def kill_after(process: BaseProcess, seconds: float) -> bool:
    """Was it alive until then?"""
    process.join(seconds)
    process.kill()
    process.join()
    return process.exitcode == -9


def run_once(recipe: str, folder: Path) -> Recipe:
    changes = small(recipe, folder)
    run = folder / f"{recipe} uninterrupted"
    process = start(command, [recipe, f"--runs={folder}", f"--name={run.name}", *changes], folder / f"{run.name}.log")
    wait_for(run / "metrics.csv", process)
    began = time.monotonic()
    if wait(process) != 0:
        raise RuntimeError(f"{recipe} did not run: {(folder / f'{run.name}.log').read_text()[-2000:]}")
    return Recipe(recipe, changes, state_of_run(run), time.monotonic() - began)


def kill_runs(count: int, chance: random.Random, folder: Path, tick: Tick) -> Outcome:
    """Each in turn, at a moment past the start of its second epoch, until so many were hit."""
    outcome = Outcome("killed runs", count)
    recipes = itertools.cycle([run_once(name, folder) for name in list_recipes()[:count]])
    while outcome.done < count and len(outcome.failures) < count:
        recipe = next(recipes)
        name = f"{recipe.name} {outcome.done}"
        run, log = folder / name, folder / f"{name}.log"
        process = start(command, [recipe.name, f"--runs={folder}", f"--name={name}", *recipe.changes], log)
        wait_for(run / "metrics.csv", process)
        if not kill_after(process, chance.uniform(0, recipe.seconds)):
            if process.exitcode:
                outcome.failures.append(f"{name} did not run: {log.read_text()[-2000:]}")
            outcome.note("had ended before")
            shutil.rmtree(run, ignore_errors=True)
            continue
        note_where(outcome, recipe, run)
        process = start(command, ["--resume", str(run)], log)
        if chance.random() < AGAIN and kill_after(process, chance.uniform(0, recipe.seconds)):
            outcome.note("killed twice")
            process = start(command, ["--resume", str(run)], log)
        if wait(process) != 0:
            outcome.failures.append(f"{name} did not go on: {log.read_text()[-2000:]}")
        elif wrong := list(differences(state_of_run(run), recipe.expected)):
            outcome.failures.append(f"{name} ended differently: {', '.join(wrong[:5])}")
        else:
            shutil.rmtree(run)
        outcome.done += 1
        tick()
    return outcome


def note_where(outcome: Outcome, recipe: Recipe, run: Path) -> None:
    last = recipe.expected["global_step"]
    step = checkpoints.newest_intact(run / "checkpoints")[1]["global_step"]
    outcome.note("when all was trained" if step == last else "while training")
    if any(path.name.endswith(".tmp") for path in run.rglob("*")):
        outcome.note("while writing a file")


def save_for_ever(folder: Path, first: int, saved: "Synchronized[int]") -> None:
    """As a run does, some under a name that is there already; `saved` is the last step that is surely there."""
    torch.set_num_threads(1)
    for step in itertools.count(first):
        path = checkpoints.path_for(folder, step)
        for _ in range(1 + step % 2):
            checkpoints.save(example(step, 500_000), path)
            checkpoints.remove_old(folder, path)
            saved.value = step


def kill_savers(count: int, chance: random.Random, folder: Path, tick: Tick) -> Outcome:
    """All in one folder, as if it were one run that is killed again and again."""
    outcome = Outcome("killed while saving", count)
    saved = PROCESSES.Value("q", 0)
    folder = folder / "saving"
    for _ in range(count):
        first = saved.value + 1
        process = start(save_for_ever, folder, first, saved)
        while process.is_alive() and saved.value < first:
            time.sleep(0.002)
        if not kill_after(process, chance.uniform(0, 0.15)):
            outcome.failures.append(f"the process ended with {process.exitcode}")
        outcome.failures += unreadable(folder, saved.value)
        leftovers = sum(path.name.endswith(".tmp") for path in folder.iterdir())
        outcome.note("half written files left", leftovers)
        outcome.note("checkpoints read", len(checkpoints.all_in(folder)))
        outcome.done += 1
        tick()
    return outcome


def unreadable(folder: Path, saved: int) -> Iterator[str]:
    """What is wrong after a process was killed that had saved so many."""
    for path in checkpoints.all_in(folder):
        try:
            state = checkpoints.load(path)
        except checkpoints.DamagedCheckpointError as error:
            yield str(error)
        else:
            if wrong := list(differences(state, example(state["global_step"], 500_000))):
                yield f"{path} has another content: {wrong[0]}"
    step = checkpoints.newest_intact(folder)[1]["global_step"]
    if step < saved:
        yield f"step {saved} was saved, but the newest is {step}"


def mutate(count: int, chance: random.Random, folder: Path, tick: Tick) -> Outcome:
    """Each must be refused, and the checkpoint before it taken."""
    outcome = Outcome("damaged checkpoints", count)
    for number, kind in zip(range(count), itertools.cycle(MUTATIONS), strict=False):
        here = folder / "damaged"
        old, new = (checkpoints.path_for(here, step) for step in (1, 2))
        for path in (old, new):
            checkpoints.save(example(number, 2000), path)
        MUTATIONS[kind](new, chance)
        outcome.failures += accepted(new, f"{kind}, number {number}")
        if checkpoints.newest_intact(here)[0] != old:
            outcome.failures.append(f"{kind}, number {number}: not skipped")
        shutil.rmtree(here)
        outcome.done += 1
        tick()
    return outcome


def accepted(path: Path, kind: str) -> Iterator[str]:
    """What is wrong if a checkpoint is not refused as it should be."""
    try:
        checkpoints.load(path)
        yield f"{kind}: accepted"
    except checkpoints.DamagedCheckpointError:
        pass
    except Exception as error:
        yield f"{kind}: {type(error).__name__}: {error}"


def plant(count: int, chance: random.Random, folder: Path, tick: Tick) -> Outcome:
    """Files that would run something, with the right hash beside them."""
    outcome = Outcome("payloads", count)
    marker, path = folder / "marker", checkpoints.path_for(folder / "payloads", 1)
    path.parent.mkdir()
    every = list(payloads(marker))
    chance.shuffle(every)
    for _, (kind, content) in zip(range(count), itertools.cycle(every), strict=False):
        write_with_hash(path, content)
        outcome.failures += accepted(path, kind)
        if marker.exists():
            outcome.failures.append(f"{kind}: it ran")
            marker.unlink()
        outcome.done += 1
        tick()
    return outcome


def cut_images(count: int, chance: random.Random, folder: Path, tick: Tick) -> Outcome:
    """8 of 1,000 are left out and named; as many among a twelfth of the images end the run."""
    outcome = Outcome("runs with images that are cut short", count)
    bad = count // 125
    for images, code in ((count, 0), (2 * count // 25, 1)):
        data, name = folder / f"{images} images", f"of {images} images"
        cut = write_images(data / "train", images, bad)
        write_images(data / "val", 10, 0)
        changes = [
            "data.source=folder",
            f"data.root={data}",
            f"data.batch_size={images // 20}",
            "data.workers=1",
            "data.flip=0",
        ]
        changes += ["model.width=4", "model.h=2", "model.k=4", "trainer.max_epochs=1", "trainer.accelerator=cpu"]
        log = folder / f"{name}.log"
        process = start(command, ["digits", f"--runs={folder}", f"--name={name}", "trainer.devices=1", *changes], log)
        if wait(process) != code:
            outcome.failures.append(f"{name} ended with {process.exitcode}: {log.read_text()[-2000:]}")
        named = {line.split(",")[0] for line in (folder / name / "skipped.csv").read_text().splitlines()}
        if named != cut if code == 0 else not named < cut or "are unreadable, more than" not in log.read_text():
            outcome.failures.append(f"{name}: {len(named)} were named of {len(cut)} that are cut")
        outcome.note(f"of {images} named, exit code {process.exitcode}", len(named))
    for _ in range(count):
        outcome.done += 1
        tick()
    return outcome


TRIALS = {
    "kills": kill_runs,
    "saving_kills": kill_savers,
    "mutations": mutate,
    "payloads": plant,
    "images": cut_images,
}


@contextmanager
def workplace() -> Iterator[Path]:
    """Removed at the end; runs that failed are gone too, what was wrong with them is told."""
    PROCESSES.set_forkserver_preload(PRELOADED)
    with tempfile.TemporaryDirectory(prefix="endure-") as folder:
        yield Path(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=20, help="of training runs (%(default)s)")
    parser.add_argument("--saving-kills", type=int, default=150, help="of processes that save (%(default)s)")
    parser.add_argument("--mutations", type=int, default=1000, help="of checkpoints (%(default)s)")
    parser.add_argument("--payloads", type=int, default=50, help="in the place of checkpoints (%(default)s)")
    parser.add_argument("--images", type=int, default=25_000, help="of which 8 in 1,000 are cut short (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments and the damage (%(default)s)")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    outcomes = []
    with workplace() as folder, Progress(*columns, console=console) as progress:
        for name, trial in TRIALS.items():
            count = getattr(options, name)
            task = progress.add_task(name.replace("_", " "), total=count)
            chance = random.Random(f"{options.seed} {name}")
            outcomes.append(trial(count, chance, folder, partial(progress.advance, task)))
    for outcome in outcomes:
        print(outcome)
        for failure in outcome.failures:
            print(f"  {failure}")
    return int(any(outcome.failures or outcome.done < outcome.wanted for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
