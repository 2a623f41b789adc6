"""Atomic writing of files, and safe reading of files from others."""

import errno
import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from lambdanets.fields import refuse_nesting

LARGEST_TEXT = 16 * 2**20  # bytes of a text file, enough for the names of 300,000 classes


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write, then rename it to `path`. If writing fails, an existing file stays unchanged.

    File and folder are flushed to the disk, so that a power failure leaves the old or the new file. If the path is a
    link, its target is replaced. If it is a pipe, a device, or stdout by any name, the content is written to it.
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
    """Whether a path is a pipe, a socket, a device, or stdout or stderr, which must not be replaced by a file."""
    if not os.path.exists(path) or os.path.isdir(path):
        return False
    return not os.path.isfile(path) or printed_to(path) is not None


def printed_to(path: Path) -> int | None:
    """The descriptor of stdout or stderr, if it writes to this path."""
    for descriptor in (1, 2):
        with suppress(OSError):  # the descriptor may be closed
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                return descriptor
    return None


def open_special(path: Path) -> BinaryIO:
    """Open for writing, after the output that was printed already if it is stdout or stderr."""
    descriptor = printed_to(path)
    if descriptor is None:
        return path.open("wb")
    sys.stdout.flush()
    sys.stderr.flush()
    return os.fdopen(os.dup(descriptor), "wb")


def can_be_written(path: Path) -> bool:
    """Whether `atomic_path` can write to this path."""
    if is_special(path):
        return os.access(path, os.W_OK)
    return not os.path.isdir(path) and os.access(os.path.dirname(os.path.realpath(path)), os.W_OK | os.X_OK)


def synchronise(path: Path) -> None:
    """Flush a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: bytes) -> None:
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading. Raises OSError for pipes, which would block, and devices, which may not end."""
    mode = os.stat(path).st_mode
    kinds = {stat.S_ISFIFO: "a pipe", stat.S_ISSOCK: "a socket", stat.S_ISCHR: "a device", stat.S_ISBLK: "a device"}
    for is_kind, kind in kinds.items():
        if is_kind(mode):
            raise OSError(errno.EINVAL, f"it is {kind}, not a regular file", str(path))
    return path.open("rb")


def read_text(path: Path, largest: int = LARGEST_TEXT) -> str:
    """Read a regular UTF-8 file of at most `largest` bytes; OSError or UnicodeDecodeError for any other file."""
    with open_regular(path) as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise OSError(errno.EFBIG, f"it has more than {largest:,} bytes", str(path))
    return content.decode()


def read_json(path: Path) -> Any:
    """Read a JSON file of limited size and depth; OSError or ValueError for any other file."""
    try:
        value = json.loads(read_text(path))
    except RecursionError as error:
        raise ValueError("its values are nested too deeply") from error
    refuse_nesting(value)
    return value


def reason(error: Exception) -> str:
    """The reason of an error, without the name of the file.

    >>> reason(FileNotFoundError(2, "No such file or directory", "run.json")), reason(ValueError("no JSON"))
    ('No such file or directory', 'no JSON')
    """
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
