"""Files that are either whole or not there, for every room."""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A sibling to write, which then takes the name: nobody reads half a file, and a failure leaves the old one.

    Both are on the disk when this ends: neither a power cut leaves half of it. A link stays one, and its file is
    replaced; a pipe or a device stays what it is and gets what was written, and so does what the program prints to,
    /dev/stdout by any name.
    """
    if is_special(path):
        with tempfile.TemporaryDirectory() as folder:
            temporary = Path(folder, path.name)
            yield temporary
            with temporary.open("rb") as written, open_special(path) as special:
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
    """A pipe, a socket, a device, or what the program prints to: something whose place no file may take."""
    if not os.path.exists(path) or os.path.isdir(path):
        return False
    return not os.path.isfile(path) or printed_to(path) is not None


def printed_to(path: Path) -> int | None:
    """The descriptor, of stdout and stderr, that writes to where the path leads."""
    for descriptor in (1, 2):
        with suppress(OSError):  # a closed one writes nowhere
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                return descriptor
    return None


def open_special(path: Path) -> BinaryIO:
    """For writing; behind what has been printed already, where that goes the same way."""
    descriptor = printed_to(path)
    if descriptor is None:
        return path.open("wb")
    sys.stdout.flush()
    sys.stderr.flush()
    return os.fdopen(os.dup(descriptor), "wb")


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
