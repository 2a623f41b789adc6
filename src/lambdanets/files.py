"""Files that are either whole or not there, for every room."""

import hashlib
import os
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """A sibling first, which then takes the name: a reader never sees half a file, and a failure leaves the old one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    """Of what a file holds, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
