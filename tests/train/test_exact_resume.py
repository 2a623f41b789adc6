"""A run that was interrupted anywhere and goes on ends as the one that was not, bit by bit."""

import gc
import io
import os
import random
import signal
from pathlib import Path

import numpy as np
import pytest
from damage import differences, flip_bit, state_of_run
from lightning.pytorch import Callback
from rich.console import Console

from lambdanets.runs import RunFolder, train
from lambdanets.runs.configs import resolve
from lambdanets.train import checkpoints
from lambdanets.train.checkpointing import StoppedError

# A checkpoint after every step, and all that is random on.
CHANGES = [
    *("trainer.enable_progress_bar=false", "trainer.max_epochs=2", "checkpoint_seconds=0"),
    *("model.width=4", "model.h=2", "model.k=4", "model.dropout=0.2", "model.drop_path=0.2"),
    *("data.source=npz", "data.batch_size=8", "data.mixup=0.2", "data.cutmix=1", "data.randaugment=5"),
]


class SuddenDeathError(Exception):
    """Nothing that anybody expects."""


class Interruption(Callback):
    """When Lightning calls `hook` for the nth time, dies or gets a signal."""

    def __init__(self, hook: str, nth: int, number: int | None = None) -> None:
        self.left, self.number = nth, number
        setattr(self, hook, self.strike)

    def strike(self, *_) -> None:
        self.left -= 1
        if self.left == 0:
            if self.number is None:
                raise SuddenDeathError
            os.kill(os.getpid(), self.number)


@pytest.fixture(autouse=True)
def _without_pictures(monkeypatch):
    """Nor waiting for the disk, which power cuts alone make matter."""
    monkeypatch.setattr("lambdanets.files.synchronise", lambda _: None)
    monkeypatch.setattr("lambdanets.runs.run.draw", lambda *_: None)


@pytest.fixture(scope="module", autouse=True)
def _images(tmp_path_factory):
    """5 batches of training and 3 of validation, no two alike."""
    file, generator = tmp_path_factory.mktemp("images") / "images.npz", np.random.default_rng(0)
    x_train, x_test = (generator.integers(0, 256, (size, 8, 8), np.uint8) for size in (42, 24))
    np.savez(file, x_train=x_train, y_train=np.arange(42) % 10, x_test=x_test, y_test=np.arange(24) % 10)
    CHANGES.append(f"data.root={file}")
    yield
    CHANGES.pop()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """What a run with some changes ends with; each is made once."""
    known = {}

    def make(*changes: str) -> dict:
        if changes not in known:
            folder = tmp_path_factory.mktemp("uninterrupted")
            run_until_end(folder, changes)
            known[changes] = state_of_run(folder)
        return known[changes]

    return make


def run_until_end(folder: Path, changes=(), *, resume: bool = False) -> str:
    """What the console says."""
    said = io.StringIO()
    train(resolve("digits", [*CHANGES, *changes]), RunFolder(folder), resume=resume, console=Console(file=said))
    return said.getvalue()


def interrupt(folder: Path, changes, hook: str, nth: int, number: int | None = None, *, resume: bool = False) -> None:
    handlers = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    config = resolve("digits", [*CHANGES, *changes])
    with pytest.raises(SuddenDeathError if number is None else StoppedError) as ended:
        train(config, RunFolder(folder), resume=resume, callbacks=[Interruption(hook, nth, number)])
    if number is not None:
        newest = checkpoints.all_in(folder / "checkpoints")[0]
        assert ended.value.exit_code == 128 + number
        assert str(newest) in str(ended.value)
        assert not checkpoints.newest_intact(folder / "checkpoints")[2]
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == handlers


def same(folder: Path, expected: dict) -> None:
    assert list(differences(state_of_run(folder), expected)) == []
    assert not [path.name for path in folder.rglob("*") if path.name.endswith(".tmp")]


PLACES = {
    "within the second epoch": ("on_train_batch_end", 7),
    "at the last batch of an epoch": ("on_train_batch_end", 5),
    "in validation": ("on_validation_batch_start", 2),
    "at the end of an epoch": ("on_train_epoch_end", 1),
    "in the last validation": ("on_validation_batch_end", 5),
}


@pytest.mark.parametrize("number", [None, signal.SIGTERM], ids=["death", "SIGTERM"])
@pytest.mark.parametrize("place", PLACES)
def test_interrupted_is_uninterrupted(tmp_path, uninterrupted, place, number):
    interrupt(tmp_path, (), *PLACES[place], number)
    run_until_end(tmp_path, resume=True)
    same(tmp_path, uninterrupted())


@pytest.mark.parametrize("place", ["within the second epoch", "in the last validation"])
def test_statistics_estimated_at_the_end_are_the_same(tmp_path, monkeypatch, place):
    """As in runs of many steps; what is found at the end is the same, too."""
    monkeypatch.setattr("lambdanets.train.norm_statistics.SHORT_RUN", 0)
    run_until_end(tmp_path / "whole")
    interrupt(tmp_path / "interrupted", (), *PLACES[place], signal.SIGTERM)
    run_until_end(tmp_path / "interrupted", resume=True)
    same(tmp_path / "interrupted", state_of_run(tmp_path / "whole"))
    whole, interrupted = (RunFolder(tmp_path / name).description() for name in ("whole", "interrupted"))
    assert (whole.score, whole.epochs) == (interrupted.score, 2)


VARIANTS = {
    "accumulating": ["trainer.accumulate_grad_batches=2"],
    "workers": ["data.workers=2"],
    "rare validation": [
        "trainer.max_epochs=3",
        "trainer.check_val_every_n_epoch=2",
        "optim.optimizer=adamw",
        "optim.lr=0.001",
    ],
    "steps, not epochs": ["trainer.max_steps=9"],
}


@pytest.fixture
def _workers_end(monkeypatch):
    """Those of a loader that is found in a cycle of garbage do not hear that they should: torch waits for each."""
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.1)
    yield
    gc.collect()


@pytest.mark.usefixtures("_workers_end")
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_way_to_train(tmp_path, uninterrupted, variant):
    """Each is asked to stop once and dies once."""
    changes = tuple(VARIANTS[variant])
    interrupt(tmp_path, changes, "on_train_batch_end", 6, signal.SIGINT)
    interrupt(tmp_path, changes, "on_train_batch_start", 2, resume=True)
    run_until_end(tmp_path, changes, resume=True)
    same(tmp_path, uninterrupted(*changes))


CHAINS = {
    # The first checkpoint after the second start is written before anything is drawn from the generators.
    "in validation, then before the next batch": [
        ("on_validation_batch_end", 1, signal.SIGTERM),
        ("on_train_epoch_start", 1, None),
    ],
    "in validation, twice": [
        ("on_validation_batch_end", 1, signal.SIGTERM),
        ("on_validation_batch_end", 2, signal.SIGTERM),
    ],
    "in validation, then dead in the same": [
        ("on_validation_batch_end", 1, signal.SIGINT),
        ("on_validation_batch_end", 2, None),
    ],
    "when all is trained": [("on_train_epoch_end", 2, None)],
    "again before a single step": [("on_train_batch_end", 7, None), ("on_train_batch_start", 1, None)],
}


@pytest.mark.parametrize("chain", CHAINS)
def test_interrupted_again(tmp_path, uninterrupted, chain):
    for turn, (hook, nth, number) in enumerate(CHAINS[chain]):
        interrupt(tmp_path, (), hook, nth, number, resume=turn > 0)
    run_until_end(tmp_path, resume=True)
    same(tmp_path, uninterrupted())


def test_a_finished_run_stays_as_it_is(tmp_path, uninterrupted):
    run_until_end(tmp_path)
    run_until_end(tmp_path, resume=True)
    same(tmp_path, uninterrupted())


def test_a_signal_when_all_is_trained_lets_it_finish(tmp_path, uninterrupted):
    config = resolve("digits", CHANGES)
    train(config, RunFolder(tmp_path), callbacks=[Interruption("on_train_epoch_end", 2, signal.SIGTERM)])
    assert RunFolder(tmp_path).description().finished
    same(tmp_path, uninterrupted())


def test_damaged_checkpoints_are_named_and_skipped(tmp_path, uninterrupted):
    interrupt(tmp_path, (), "on_train_batch_end", 8)
    newest, older = checkpoints.all_in(tmp_path / "checkpoints")
    flip_bit(newest, random.Random(0))
    said = run_until_end(tmp_path, resume=True).replace("\n", "")
    assert f"skipped: {newest} is damaged" in said
    assert f"resuming from {older}" in said
    same(tmp_path, uninterrupted())


def test_damaged_checkpoints_do_not_take_the_place_of_good_ones(tmp_path):
    """Nor do those of a run that had come further."""
    interrupt(tmp_path, (), "on_train_batch_end", 4)
    damaged = checkpoints.path_for(tmp_path / "checkpoints", 99)
    damaged.write_bytes(b"damaged")
    interrupt(tmp_path, (), "on_train_batch_end", 3, resume=True)
    path, _, complaints = checkpoints.newest_intact(tmp_path / "checkpoints")
    assert (path.name, complaints) == ("step-00000007.ckpt", [])
    assert len([checkpoints.load(path) for path in checkpoints.all_in(tmp_path / "checkpoints")]) == 2
