"""Checkpoints come back as they were or not at all, whatever happens to them, and nothing in them runs."""

import errno
import os
import pickle
import random
import resource
import subprocess
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import torch
from damage import MUTATIONS, PAYLOADS, by_hand, differences, example, payloads, write_with_hash

from lambdanets.train import checkpoints
from lambdanets.train.checkpoints import DamagedCheckpointError, all_in, load, newest_intact, path_for, remove_old, save


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run" / "checkpoints"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_comes_back_as_it_was(folder):
    state = example(5) | {
        "odd": {"dtypes": [torch.zeros(3, dtype=dtype) for dtype in (torch.bfloat16, torch.int64, torch.bool)]},
        "special": torch.tensor([float("nan"), float("inf"), -0.0]).view(torch.int32),
        "none": None,
        "tuple": (1, 2.5, "three"),
    }
    path = path_for(folder, 5)
    save(state, path)
    assert list(differences(load(path), state)) == []
    assert names(folder) == ["step-00000005.ckpt", "step-00000005.ckpt.sha256"]
    assert subprocess.run(["sha256sum", "--check", "--quiet", f"{path.name}.sha256"], cwd=folder).returncode == 0


def test_the_newest_is_the_one_with_the_highest_step(folder):
    for step in (9, 100_000_000, 11, 99_999_999):
        save(example(step, 8), path_for(folder, step))
    (folder / "step-x.ckpt").touch()
    (folder / "notes.txt").touch()
    assert [path.name for path in all_in(folder)] == [f"step-{step:08}.ckpt" for step in (10**8, 10**8 - 1, 11, 9)]
    path, state, complaints = newest_intact(folder)
    assert (path, state["global_step"], complaints) == (path_for(folder, 10**8), 10**8, [])

    path.write_bytes(b"damaged")
    checkpoints.hash_path(path_for(folder, 10**8 - 1)).unlink()
    path, state, complaints = newest_intact(folder)
    assert (path, state["global_step"]) == (path_for(folder, 11), 11)
    assert [line.partition(" ")[0] for line in complaints] == [str(path_for(folder, 10**8 - n)) for n in (0, 1)]


def test_nothing_to_go_on_from(folder):
    with pytest.raises(DamagedCheckpointError, match=f"{folder} has no checkpoint to resume from"):
        newest_intact(folder)
    folder.mkdir(parents=True)
    path_for(folder, 3).touch()
    with pytest.raises(DamagedCheckpointError, match=str(path_for(folder, 3))):
        newest_intact(folder)


def test_the_last_two_stay(folder):
    """What killed processes left half written goes, and damaged files that would take the place of good ones."""
    for step in (1, 2, 3):
        save(example(step, 8), path_for(folder, step))
    for name in (
        ".step-00000002.ckpt.4711.tmp",
        ".step-00000002.ckpt.sha256.4711.tmp",
        "step-00000000.ckpt.sha256",
        "step-00000009.ckpt",
    ):
        (folder / name).write_text("half")
    (folder / "notes.txt").touch()
    (folder / "step-00000007.ckpt").mkdir()
    remove_old(folder, path_for(folder, 3))
    kept = [f"step-0000000{step}.ckpt{end}" for step in (2, 3) for end in ("", ".sha256")]
    assert names(folder) == ["notes.txt", *kept, "step-00000007.ckpt"]
    assert [load(path_for(folder, step))["global_step"] for step in (2, 3)] == [2, 3]


@pytest.mark.parametrize("kind", MUTATIONS)
def test_damage_is_seen(folder, kind):
    """Five different ones of each kind: a hundred."""
    for seed in range(5):
        save(example(1, 800), path_for(folder, 1))
        save(example(2, 800), path_for(folder, 2))
        MUTATIONS[kind](path_for(folder, 2), random.Random(f"{kind} {seed}"))
        with pytest.raises(DamagedCheckpointError, match=str(path_for(folder, 2))):
            load(path_for(folder, 2))
        path, state, complaints = newest_intact(folder)
        assert (path, state["global_step"]) == (path_for(folder, 1), 1)
        assert len(complaints) == path_for(folder, 2).exists()
        empty(folder)


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.rmdir() if path.is_dir() else path.unlink()


@pytest.mark.parametrize("kind", PAYLOADS)
def test_payloads_would_run(tmp_path, kind):
    """Else it would prove nothing that they do not."""
    marker = tmp_path / "marker"
    started = pickle.loads(pickle.dumps(PAYLOADS[kind](marker)))
    if isinstance(started, subprocess.Popen):
        started.wait()
    assert marker.exists()


def test_the_payload_by_hand_would_run(tmp_path):
    pickle.loads(by_hand(tmp_path / "marker"))
    assert (tmp_path / "marker").exists()


def test_nothing_runs(tmp_path, folder):
    """Though the hash is right."""
    marker, path = tmp_path / "marker", path_for(folder, 1)
    folder.mkdir(parents=True)
    for kind, content in payloads(marker):
        write_with_hash(path, content)
        with pytest.raises(DamagedCheckpointError, match=f"{path} is not a checkpoint"):
            load(path)
        assert not marker.exists(), kind
        with pytest.raises(DamagedCheckpointError):
            newest_intact(folder)


@contextmanager
def disk_full(after: int):
    """No file can have more bytes; Python ignores the signal that goes with it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (after, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("after", [0, 50, 5000, 40_000])
@pytest.mark.parametrize("step", [1, 2], ids=["over an old one", "as a new one"])
def test_a_full_disk_leaves_what_was_there(folder, after, step):
    save(example(1), path_for(folder, 1))
    before = names(folder)
    with disk_full(after), pytest.raises(OSError, match=path_for(folder, step).name) as raised:
        save(example(7), path_for(folder, step))
    assert raised.value.filename == str(path_for(folder, step))
    assert raised.value.strerror
    assert names(folder) == before
    path, state, complaints = newest_intact(folder)
    assert (path, complaints) == (path_for(folder, 1), [])
    assert list(differences(state, example(1))) == []


class FailingCall:
    """Of a function that writes, the nth call fails as those of a disk that is read-only by now."""

    def __init__(self, function, nth: int = -1) -> None:
        self.function, self.nth, self.calls = function, nth, 0

    def __get__(self, instance, owner):
        return partial(self, instance)  # it may stand for a method

    def __call__(self, *arguments, **more):
        if self.function is WRITING["pathlib.Path.open"] and "wb" not in (*arguments, *more.values()):
            return self.function(*arguments, **more)
        self.calls += 1
        if self.calls == self.nth:
            raise OSError(errno.EROFS, "Read-only file system")
        return self.function(*arguments, **more)


WRITING = {"os.fsync": os.fsync, "os.replace": os.replace, "pathlib.Path.open": Path.open}


@pytest.mark.parametrize("name", WRITING)
@pytest.mark.parametrize("step", [1, 2], ids=["over an old one", "as a new one"])
def test_a_disk_that_fails_at_any_moment(folder, monkeypatch, name, step):
    """Each time a call later."""
    path, function = path_for(folder, step), WRITING[name]

    def save_with(call: FailingCall) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        empty(folder)
        save(example(1, 800), path_for(folder, 1))
        with monkeypatch.context() as patch:
            patch.setattr(name, call)
            save(example(7, 800), path)

    save_with(counting := FailingCall(function))
    assert load(path)["global_step"] == 7
    assert counting.calls >= 2
    for nth in range(1, counting.calls + 1):
        with pytest.raises(OSError, match="Read-only file system") as raised:
            save_with(FailingCall(function, nth))
        assert (raised.value.errno, raised.value.filename) == (errno.EROFS, str(path))
        assert not [name for name in names(folder) if name.endswith(".tmp")]
        _, state, complaints = newest_intact(folder)
        assert complaints == []
        assert list(differences(state, example(state["global_step"], 800))) == []


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("no folder")
    path = path_for(tmp_path / "file" / "checkpoints", 1)
    with pytest.raises(OSError, match=str(path)):
        save(example(1, 8), path)
    assert names(tmp_path) == ["file"]


def test_killed_between_a_hash_and_its_file(folder, monkeypatch):
    """A checkpoint that is written again under its name is there before and after."""
    path, replace = path_for(folder, 1), os.replace
    save(example(1, 8), path)

    def replace_hashes_only(source, target):
        if Path(target) == path:
            raise SystemExit("killed")
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", replace_hashes_only)
        with pytest.raises(SystemExit):
            save(example(2, 8), path)
    assert load(path)["global_step"] == 1
    save(example(3, 8), path)
    assert load(path)["global_step"] == 3
    assert checkpoints.hash_path(path).read_text().count("\n") == 1
