"""Checkpoints of a run: `step-00001234.ckpt` and its hash `step-00001234.ckpt.sha256`, in the format of sha256sum.

A file gets its name only when it is complete and on the disk, and its hash is written first. So the newest checkpoint
that matches its hash is complete, however the process ended. Loading reads tensors and plain values, and never executes
code.
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
OURS = re.compile(rf"\.?{NAME.pattern}")  # also matches hashes and incomplete files


class DamagedCheckpointError(ValueError):
    """A checkpoint that does not match its hash or cannot be loaded; the message names it."""


def path_for(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08}.ckpt"


def hash_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def save(state: dict[str, Any], path: Path) -> None:
    """Write a checkpoint. Raises OSError with the path if that fails; older checkpoints are not touched."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        before = hashes_of(path)
        with atomic_path(path) as temporary:
            with temporary.open("wb") as file:
                torch.save(state, file)
            line = f"{sha256(temporary)}  {path.name}\n"
            # Keep the hash of an existing file of this name, which is valid until the new one replaces it.
            write_atomically(hash_path(path), f"{line}{before}".encode())
        if before:
            write_atomically(hash_path(path), line.encode())
    except RuntimeError as error:  # torch raises this for a full disk
        raise OSError(None, f"cannot be written: {error}", str(path)) from error
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def hashes_of(path: Path) -> str:
    """The content of its hash file, or an empty string."""
    try:
        return read_text(hash_path(path))
    except (OSError, UnicodeDecodeError):
        return ""


def load(path: Path) -> dict[str, Any]:
    """Load a checkpoint on the CPU; DamagedCheckpointError if it does not match its hash."""
    try:
        expected = read_text(hash_path(path))
        with open_regular(path) as file:
            content = file.read()
    except (OSError, UnicodeDecodeError, MemoryError) as error:
        raise DamagedCheckpointError(f"{path} or its .sha256 cannot be read: {reason(error)}") from error
    if f"{hashlib.sha256(content).hexdigest()}  {path.name}\n" not in expected.splitlines(keepends=True):
        raise DamagedCheckpointError(f"{path} is damaged: its sha256 does not match {hash_path(path).name}")
    try:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # a manipulated file with a valid hash can raise anything
        raise DamagedCheckpointError(f"{path} is not a checkpoint: {str(error).partition(chr(10))[0]}") from error
    if not isinstance(state, dict):
        raise DamagedCheckpointError(f"{path} is not a checkpoint: it holds {type(state).__name__}")
    return state


def all_in(folder: Path) -> list[Path]:
    """All checkpoints in a folder, newest first."""
    found = {path: NAME.fullmatch(path.name) for path in folder.iterdir()} if folder.is_dir() else {}
    steps = {path: int(match[1]) for path, match in found.items() if match}
    return sorted(steps, key=lambda path: steps[path], reverse=True)


def newest_intact(folder: Path) -> tuple[Path, dict[str, Any], list[str]]:
    """The path and content of the newest intact checkpoint, and what is wrong with newer ones."""
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
    """Remove all checkpoints except `newest`, which was just saved, and the one before it.

    This includes checkpoints with higher numbers, which were damaged or belong to another run, and incomplete files of
    killed processes.
    """
    found = all_in(folder)
    kept = found[found.index(newest) :][:KEPT]
    staying = {file for path in kept for file in (path, hash_path(path))}
    for file in sorted(folder.iterdir()):  # sorted, so that a checkpoint is removed before its hash
        if OURS.match(file.name) and file not in staying and file.is_file():
            file.unlink(missing_ok=True)


class HashedCheckpointIO(CheckpointIO):
    """Reads and writes Lightning's checkpoints with hashes."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        save(checkpoint, Path(path))

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        return load(Path(path))

    def remove_checkpoint(self, path: Any) -> None:
        remove(Path(path))
