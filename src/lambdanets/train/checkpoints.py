"""Checkpoints of a run: `step-00001234.ckpt`, and beside each `.ckpt.sha256`, as sha256sum writes and checks it.

A file takes its name only when it is whole and on the disk, with its hash there first. So whatever ends a process, the
newest checkpoint that its hash confirms is one that was meant to be. Loading reads tensors and plain values, nothing
that could run.
"""

import hashlib
import io
import re
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import CheckpointIO

from lambdanets.files import atomic_path, open_regular, read_text, reason, sha256, write_atomically

KEPT = 2  # the newest, and one to fall back on
NAME = re.compile(r"step-(\d{8,})\.ckpt")
OURS = re.compile(rf"\.?{NAME.pattern}")  # with hashes, and what is not yet whole


class DamagedCheckpointError(ValueError):
    """A checkpoint that is not what was written; the message names it."""


def path_for(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08}.ckpt"


def hash_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def save(state: dict[str, Any], path: Path) -> None:
    """OSError, with the path in it, if the disk does not take it; older checkpoints stay as they are."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        before = hashes_of(path)
        with atomic_path(path) as temporary:
            with temporary.open("wb") as file:
                torch.save(state, file)
            line = f"{sha256(temporary)}  {path.name}\n"
            # A file of this name is the one to resume from until this one replaces it.
            write_atomically(hash_path(path), f"{line}{before}".encode())
        if before:
            write_atomically(hash_path(path), line.encode())
    except RuntimeError as error:  # torch's word for a disk that is full
        raise OSError(None, f"cannot be written: {error}", str(path)) from error
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def hashes_of(path: Path) -> str:
    """The lines beside it, if there are any."""
    try:
        return read_text(hash_path(path))
    except (OSError, UnicodeDecodeError):
        return ""


def load(path: Path) -> dict[str, Any]:
    """What was saved, on the CPU."""
    try:
        expected = read_text(hash_path(path))
        with open_regular(path) as file:
            content = file.read()
    except (OSError, UnicodeDecodeError, MemoryError) as error:
        raise DamagedCheckpointError(f"{path} or its .sha256 cannot be read: {reason(error)}") from error
    if f"{hashlib.sha256(content).hexdigest()}  {path.name}\n" not in expected.splitlines(keepends=True):
        raise DamagedCheckpointError(f"{path} is damaged: its sha256 is not the one in {hash_path(path).name}")
    try:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # a file made to fool the hash may make torch say anything
        raise DamagedCheckpointError(f"{path} is no checkpoint: {str(error).partition(chr(10))[0]}") from error
    if not isinstance(state, dict):
        raise DamagedCheckpointError(f"{path} is no checkpoint: it holds {type(state).__name__}")
    return state


def all_in(folder: Path) -> list[Path]:
    """From the newest to the oldest."""
    found = {path: NAME.fullmatch(path.name) for path in folder.iterdir()} if folder.is_dir() else {}
    steps = {path: int(match[1]) for path, match in found.items() if match}
    return sorted(steps, key=lambda path: steps[path], reverse=True)


def newest_intact(folder: Path) -> tuple[Path, dict[str, Any], list[str]]:
    """The checkpoint to resume from, what it holds, and what is wrong with newer ones."""
    complaints: list[str] = []
    for path in all_in(folder):
        try:
            return path, load(path), complaints
        except DamagedCheckpointError as error:
            complaints.append(str(error))
    raise DamagedCheckpointError("; ".join([f"{folder} has no checkpoint to resume from", *complaints]))


def remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    hash_path(path).unlink(missing_ok=True)


def remove_old(folder: Path, newest: Path) -> None:
    """All but `newest`, which was just saved, and the one before it.

    That includes those with higher numbers, which were damaged or of another run, or this one would not have been
    saved; and what processes left half written when they were killed.
    """
    found = all_in(folder)
    kept = found[found.index(newest) :][:KEPT]
    staying = {file for path in kept for file in (path, hash_path(path))}
    for file in sorted(folder.iterdir()):  # a checkpoint before its hash
        if OURS.match(file.name) and file not in staying and file.is_file():
            file.unlink(missing_ok=True)


class HashedCheckpointIO(CheckpointIO):
    """Lightning's reading and writing of checkpoints, with hashes."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        save(checkpoint, Path(path))

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        return load(Path(path))

    def remove_checkpoint(self, path: Any) -> None:
        remove(Path(path))
