"""What a benchmark is made of: jobs, each of which measures one row."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

# A row of a table, as it is written to JSON.
Row = dict[str, Any]
# Passes the items of an iterable on, one by one, and lets somebody watch: a progress bar, or `untracked`.
Track = Callable[[Iterable[Any]], Iterable[Any]]


class CannotBenchmarkError(RuntimeError):
    """This benchmark would say nothing here: something it needs is missing, or what it would time is wrong."""


@dataclass(frozen=True)
class Job:
    """One row to measure; `run` tracks as many items as there are `steps`."""

    label: str
    steps: int
    run: Callable[[Track], Row]


def untracked(items: Iterable[Any]) -> Iterable[Any]:
    return items
