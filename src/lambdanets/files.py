"""Files that are either whole or not there, for every room."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A sibling to write, which then takes the name: nobody reads half a file, and a failure leaves the old one.

    Both are on the disk when this ends: neither a power cut leaves half of it. A link stays one, and its file is
    replaced; a pipe or a device, such as /dev/stdout, stays what it is and gets what was written.
    """
    if is_special(path):
        with tempfile.TemporaryDirectory() as folder:
            temporary = Path(folder, path.name)
            yield temporary
            with temporary.open("rb") as written, path.open("wb") as special:
                shutil.copyfileobj(written, special)
        return
    path = Path(os.path.realpath(path))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        synchronise(temporary)
        os.replace(temporary, path)
        synchronise(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def is_special(path: Path) -> bool:
    """A pipe, a socket or a device: something that is there and has no file's place to take."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def can_be_written(path: Path) -> bool:
    """Whether `atomic_path` would find where to write."""
    if is_special(path):
        return os.access(path, os.W_OK)
    return not os.path.isdir(path) and os.access(os.path.dirname(os.path.realpath(path)), os.W_OK | os.X_OK)


def synchronise(path: Path) -> None:
    """Wait until what a file or a folder holds is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: bytes) -> None:
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def sha256(path: Path) -> str:
    """Of what a file holds, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
