"""Image files that a user names."""

from collections.abc import Sequence
from glob import glob
from pathlib import Path

from lambdanets.data.images.decode import EXTENSIONS
from lambdanets.data.splits import DataError


def find_images(patterns: Sequence[str]) -> list[Path]:
    """Files, all images of folders, and what patterns such as pictures/*.jpg match, each once."""
    found: dict[Path, None] = {}
    for pattern in patterns:
        path = Path(pattern)
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.suffix[1:].lower() in EXTENSIONS and p.is_file())
        else:
            matching = map(Path, glob(pattern, recursive=True))
            inside = [path] if path.exists() else sorted(p for p in matching if p.is_file())
        if not inside:
            raise DataError(f"{pattern} is not a file, a folder with images, or a pattern that matches any")
        found |= dict.fromkeys(inside)
    return list(found)
