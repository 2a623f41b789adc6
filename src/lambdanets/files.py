"""Files that are either whole or not there, and files that others wrote, for every room."""

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

LARGEST_TEXT = 16 * 2**20  # bytes of a text file; names of 300,000 classes fit


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
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading. Anything else is an OSError: a pipe would block, a device may never end."""
    mode = os.stat(path).st_mode
    kinds = {stat.S_ISFIFO: "a pipe", stat.S_ISSOCK: "a socket", stat.S_ISCHR: "a device", stat.S_ISBLK: "a device"}
    for is_kind, kind in kinds.items():
        if is_kind(mode):
            raise OSError(errno.EINVAL, f"it is {kind}, not a regular file", str(path))
    return path.open("rb")


def read_text(path: Path, largest: int = LARGEST_TEXT) -> str:
    """The text of a regular UTF-8 file of at most `largest` bytes; OSError or UnicodeDecodeError for any other."""
    with open_regular(path) as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise OSError(errno.EFBIG, f"it has more than {largest:,} bytes", str(path))
    return content.decode()


def read_json(path: Path) -> Any:
    """The value of a JSON file that is no deeper or larger than ours; OSError or ValueError for any other."""
    try:
        value = json.loads(read_text(path))
    except RecursionError as error:
        raise ValueError("its values are nested too deeply") from error
    refuse_nesting(value)
    return value


def reason(error: Exception) -> str:
    """Why a file cannot be read, without its name.

    >>> reason(FileNotFoundError(2, "No such file or directory", "run.json")), reason(ValueError("no JSON"))
    ('No such file or directory', 'no JSON')
    """
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
