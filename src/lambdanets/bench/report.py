"""Files of measurements: the machine, the command, its settings and the rows."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lambdanets.bench.job import Row
from lambdanets.files import read_json, write_atomically


@dataclass(frozen=True)
class Report:
    machine: dict[str, Any]
    command: str
    settings: dict[str, Any]
    rows: list[Row]

    def write(self, path: Path) -> None:
        write_atomically(path, f"{json.dumps(asdict(self), indent=1)}\n".encode())

    @classmethod
    def read(cls, path: Path) -> "Report":
        """Read a report; ValueError if the file is not one."""
        try:
            return cls(**read_json(path))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} is not a report of lambdanets bench: {error}") from error


def command_line(benchmark: str, settings: Mapping[str, Any]) -> str:
    """The command with every setting written out.

    >>> command_line("layers", {"rounds": 3, "quick": True, "threads": None})
    'lambdanets bench layers --rounds 3 --quick'
    """
    options = [f"--{name}" if value is True else f"--{name} {value}" for name, value in settings.items() if value]
    return " ".join(["lambdanets bench", benchmark, *options])
