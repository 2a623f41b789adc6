"""Several processes do what one does: the same samples, the same steps, the same files."""

import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
import torch
from damage import write_images
from lightning.pytorch import Callback
from norms import statistics_differences
from sklearn.datasets import load_digits
from without_batch_norm import PAUSE, create_model

from lambdanets.runs import RunFolder, networks
from lambdanets.runs import run as running
from lambdanets.runs.configs import resolve
from lambdanets.train import checkpoints
from lambdanets.train.checkpointing import StoppedError

PROGRAM = str(Path(__file__).with_name("without_batch_norm.py"))
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
TWO = ["--devices", "2"]
STEPS, EPOCH = 100, 20  # of a run
FEW = ("trainer.limit_train_batches=7", "trainer.max_epochs=3")
VALIDATED = 101  # images: the last batch of 16 has 5 of them
LIMIT = 600  # seconds for any process: none may wait for one that is gone. Only then is it a matter of time
MARK = f"LAMBDANETS_TESTED_BY={uuid4()}"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", **dict([MARK.split("=")])}


@pytest.fixture(scope="module")
def settings(tmp_path_factory) -> list[str]:
    digits, n = load_digits(), 16 * EPOCH + 7
    images, labels = np.rint(digits.images * (255 / 16)).astype(np.uint8), digits.target
    path = tmp_path_factory.mktemp("data") / "digits.npz"
    end = n + VALIDATED
    np.savez(path, x_train=images[:n], y_train=labels[:n], x_test=images[n:end], y_test=labels[n:end])
    return [
        "data.source=npz",
        f"data.root={path}",
        "data.batch_size=16",
        "model.width=4",
        "model.h=2",
        "model.k=4",
        "optim.warmup_epochs=0.5",
        "data.crop=none",
        "data.flip=0.2",
        "optim.lr=0.03",
        "optim.lr_batch=null",
        "optim.label_smoothing=0",
        "trainer.gradient_clip_val=0.5",  # without, so small a network is chaotic, and no rounding stays small
        f"trainer.max_epochs={STEPS // EPOCH}",
        "trainer.accelerator=cpu",
    ]


def command(
    *arguments: str | Path, by: list[str] | None = None, program: Sequence[str] = (PROGRAM,)
) -> subprocess.Popen:
    command = [*(by or [sys.executable]), *program, "train", *map(str, arguments)]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def output_of(process: subprocess.Popen, code: int = 0) -> str:
    """When it has ended, and all that it started."""
    try:
        output = process.communicate(timeout=LIMIT)[0]
        assert process.returncode == code, output
        assert not living(), output
    finally:
        for pid in living():
            os.kill(pid, signal.SIGKILL)
    return output


def living() -> list[int]:
    """Processes with our mark: torchrun's do not even stay in one session."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if MARK.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:  # gone by now
            continue
    return found


@pytest.fixture
def alone(monkeypatch, settings):
    """Trains in this process."""

    def train(folder: Path, *changes: str, callbacks=(), resume: bool = False) -> Path:
        monkeypatch.setattr(networks, "create_model", create_model)
        monkeypatch.setattr(running, "create_model", create_model)
        recipe = folder / "config.yaml" if resume else "digits"
        config = resolve(recipe, [*([] if resume else settings), *changes])
        running.train(config, RunFolder(folder), callbacks=callbacks, resume=resume)
        return folder

    return train


class Stop(Callback):
    """As a machine does that is wanted for something else."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer, *rest) -> None:
        if trainer.global_step == self.step:
            os.kill(os.getpid(), signal.SIGTERM)


def difference(run: Path, other: Path) -> float:
    """Between the weights and averages that two runs have at their end, as a share of the largest.

    In float64 between momenta too; in float32 a rectifier that switches at another rounding would show there first.
    """
    (step, one), (other_step, two) = map(newest, (run, other))
    assert step == other_step
    tensors, others = everything(one), everything(two)
    assert tensors.keys() == others.keys()
    largest = max(float(t.abs().max()) for t in tensors.values())
    found = max(float((t - others[name]).abs().max()) for name, t in tensors.items()) / largest
    print(f"{run.name} and {other.name} differ by {found:.1e} after {step} steps")
    return found


def newest(run: Path) -> tuple[int, dict]:
    state = checkpoints.load(checkpoints.all_in(run / "checkpoints")[0])
    return state["global_step"], state


def everything(state: dict) -> dict[str, torch.Tensor]:
    if state["state_dict"]["model.classifier.weight"].dtype != torch.float64:
        return state["state_dict"]
    momenta, groups = (state["optimizer_states"][0][name] for name in ("state", "param_groups"))
    order = [number for group in groups for number in group["params"]]
    return state["state_dict"] | {f"momentum {i}": momenta[n]["momentum_buffer"] for i, n in enumerate(order)}


def rows(run: Path) -> list[dict[str, float]]:
    with (run / "metrics.csv").open() as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def check_metrics(run: Path, other: Path, tolerance: float) -> None:
    """Every image counts once: with one counted twice or left out the accuracies would differ by a percent."""
    first, second = rows(run), rows(other)
    assert [row["step"] for row in first] == [row["step"] for row in second]
    for row, other_row in zip(first, second, strict=True):
        for name in ("lr", "train_loss", "val_loss", "val_accuracy", "val_accuracy_top5"):
            assert row[name] == pytest.approx(other_row[name], abs=tolerance), (name, row["epoch"])
            assert row["val_accuracy"] * VALIDATED == pytest.approx(round(row["val_accuracy"] * VALIDATED), abs=1e-4)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("runs")


def test_two_processes_started_by_lightning_equal_one_that_can_go_on(alone, settings, folders):
    options = ["--runs", folders, "--name", "two", *TWO, "trainer.precision=64-true"]
    process = command("digits", *settings, *options)
    exact = alone(folders / "exact", "trainer.precision=64-true")
    output_of(process)
    assert newest(exact)[0] == STEPS
    assert rows(exact)[-1]["val_accuracy"] > 0.3  # something was learned
    assert difference(exact, folders / "two") <= 1e-10
    check_metrics(exact, folders / "two", 1e-6)
    forget_last_epoch(folders / "two")
    alone(folders / "two", "trainer.devices=1", resume=True)
    assert difference(exact, folders / "two") <= 1e-10
    check_metrics(exact, folders / "two", 1e-6)


def test_bad_images_are_counted_in_all_processes_together(folders, tmp_path):
    bad = write_images(tmp_path / "train", 500, bad=5)
    write_images(tmp_path / "val", 20, bad=0)
    small = ("model.width=4", "model.h=2", "model.k=4", "data.batch_size=50", "trainer.max_epochs=1")
    where = ("data.source=folder", f"data.root={tmp_path}", "trainer.accelerator=cpu", "--runs", folders, *TWO)
    output_of(command("digits", *small, *where, "--name", "with few bad"))
    skipped = (folders / "with few bad" / "skipped.csv").read_text().splitlines()
    assert {line.partition(",")[0] for line in skipped} == bad
    write_images(tmp_path / "train", 500, bad=6)
    assert "6 of 520 images are unreadable" in output_of(
        command("digits", *small, *where, "--name", "with many bad"), code=1
    )


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_norms_of_two_processes_have_the_statistics_that_one_estimates(settings, folders, strategy):
    """From the same weights. With real batch norms, whose batches differ, the weights themselves are others."""
    name = f"norms with {strategy}"
    options = ["--runs", folders, "--name", name, *TWO, f"trainer.strategy={strategy}", "data.flip=0", *FEW]
    output_of(command("digits", *settings, *options, program=["-m", "lambdanets.cli"]))
    run = RunFolder(folders / name)
    assert max(statistics_differences(run).values()) <= 1e-5
    (*_, last), found = rows(run.path), run.description().score
    assert last["val_accuracy"] == found


def forget_last_epoch(run: Path) -> None:
    checkpoints.remove(checkpoints.all_in(run / "checkpoints")[0])
    shutil.rmtree(run / "model")
    assert newest(run)[0] == STEPS - EPOCH


def test_two_processes_started_by_torchrun_go_on_where_one_stopped(alone, settings, folders):
    run = folders / "torchrun"
    stopped_in_second_epoch(alone, run)
    process = command("--resume", run, *TWO, by=TORCHRUN)
    single = alone(folders / "single")
    output_of(process)
    assert newest(single)[0] == STEPS
    assert difference(single, run) <= 1e-5
    check_metrics(single, run, 1e-5)


def stopped_in_second_epoch(alone, run: Path, *changes: str, epoch: int = EPOCH) -> None:
    with pytest.raises(StoppedError):
        alone(run, *changes, callbacks=[Stop(epoch + 2)])
    assert epoch < newest(run)[0] < 2 * epoch


@pytest.fixture
def few(folders, alone):
    """A shorter run of one process, made while others are at work on the same."""

    def run() -> Path:
        path = folders / "few"
        return path if path.exists() else alone(path, *FEW)

    return run


def test_shards_go_on_where_one_process_stopped(few, alone, folders):
    run = folders / "to shards"
    stopped_in_second_epoch(alone, run, *FEW, epoch=7)
    process = command("--resume", run, *TWO, "trainer.strategy=fsdp")
    single = few()
    output_of(process)
    assert difference(single, run) <= 1e-5
    check_metrics(single, run, 1e-5)


def test_sigterm_stops_both_processes_and_one_goes_on_with_their_shards(
    few, alone, settings, folders, monkeypatch, tmp_path
):
    """The signal comes while both are in step 6."""
    run = folders / "stopped"
    monkeypatch.setitem(ENVIRONMENT, PAUSE, f"6 {tmp_path}")
    options = ["--runs", folders, "--name", run.name, *TWO, "trainer.strategy=fsdp", "checkpoint_seconds=0"]
    process = command("digits", *settings, *FEW, *options)
    single, give_up = few(), time.monotonic() + LIMIT
    while len(list(tmp_path.glob("waiting-*"))) < 2:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < give_up
        time.sleep(0.02)
    process.terminate()
    (tmp_path / "go").touch()
    output = output_of(process, code=143)
    assert output.count("stopped by SIGTERM, saved as") == 1, output
    assert newest(run)[0] == 6
    alone(run, "trainer.devices=1", "trainer.strategy=auto", resume=True)
    assert difference(single, run) <= 1e-5
    check_metrics(single, run, 1e-5)


def test_a_batch_that_cannot_be_shared_is_one_line(settings, folders):
    output = output_of(command("digits", *settings, "--runs", folders, *TWO, "data.batch_size=33"), code=2)
    assert output == "lambdanets train: data.batch_size=33 is no multiple of the 2 processes\n"


def test_processes_that_others_started_need_a_name(settings, folders, monkeypatch):
    monkeypatch.setitem(ENVIRONMENT, "WORLD_SIZE", "2")
    output = output_of(command("digits", *settings, "--runs", folders), code=2)
    assert output.count("\n") == 1
    assert "give the run a --name" in output


STREAM = """
import sys, torch
from torch import distributed
from lambdanets.data import Batch, Loader
from lambdanets.train.lockstep import Lockstep

class Numbers(Loader):
    def batches(self):
        for i in range(rank * 3):
            yield Batch(inputs=torch.tensor([i, i]), counts=[1, 1], valid=torch.ones(2, dtype=torch.bool))

rank = int(sys.argv[1])
distributed.init_process_group("gloo", f"file://{sys.argv[2]}", rank=rank, world_size=2)
filler = Batch(inputs=torch.tensor([0]), counts=[1], valid=torch.tensor([False]))
batches = list(Lockstep(Numbers(), filler))
assert len(batches) == 3
assert sum(int(batch.valid.sum()) for batch in batches) == rank * 6
distributed.destroy_process_group()
"""


def test_streams_of_different_length_have_as_many_batches(tmp_path):
    arguments = [sys.executable, "-c", STREAM]
    processes = [subprocess.Popen([*arguments, str(rank), str(tmp_path / "store")], env=ENVIRONMENT) for rank in (0, 1)]
    assert [process.wait(LIMIT) for process in processes] == [0, 0]
