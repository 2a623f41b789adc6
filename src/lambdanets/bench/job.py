"""Jobs of a benchmark, each of which measures one row."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

# A row of a table, as it is written to JSON.
Row = dict[str, Any]
# Passes on the items of an iterable and may show progress; `untracked` does not.
Track = Callable[[Iterable[Any]], Iterable[Any]]


class CannotBenchmarkError(RuntimeError):
    """The benchmark cannot run: something is missing, or the outputs are wrong."""


@dataclass(frozen=True)
class Job:
    """Measures one row; `run` passes `steps` items to its tracker."""

    label: str
    steps: int
    run: Callable[[Track], Row]


def untracked(items: Iterable[Any]) -> Iterable[Any]:
    return items
