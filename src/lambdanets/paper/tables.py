"""Published figures and, where they can be counted, ours; accuracies and throughputs are the paper's."""

import csv
from collections.abc import Callable, Iterable
from functools import partial
from importlib.resources import files

from lambdanets.bench.job import Track, untracked
from lambdanets.paper import complexity
from lambdanets.paper.entries import TITLES, PublishedEntry
from lambdanets.paper.memory import MEMORY
from lambdanets.paper.networks import KNOWN, networks
from lambdanets.paper.sizes import configuration, flops, parameters

TABLES = tuple(TITLES)


def regenerate(table: int | None = None, track: Track = untracked) -> list[PublishedEntry]:
    """All figures of one table or of all tables; `track` can show progress.

    >>> [entry.verdict for entry in regenerate(9) if entry.quantity == "flops_G"]
    ['matches', 'matches', 'matches', 'matches', 'matches', 'matches']
    """
    wanted: list[Callable[[], PublishedEntry]] = []
    if table in (None, 2):
        wanted += [partial(complexity.check, law) for law in complexity.LAWS]
    wanted += [partial(entry, *figure) for figure in published() if table in (None, figure[0])]
    return [regenerated() for regenerated in track(wanted)]


def published() -> Iterable[tuple[int, str, str, str]]:
    lines = (files("lambdanets.paper") / "published.csv").read_text().splitlines()
    for row in csv.DictReader(lines):
        yield int(row["table"]), row["row"], row["quantity"], row["value"]


def printed(table: int, quantity: str) -> dict[str, float]:
    """Published values of a quantity, by row."""
    return {row: float(value) for which, row, what, value in published() if (which, what) == (table, quantity)}


def entry(table: int, row: str, quantity: str, value: str) -> PublishedEntry:
    ours = COUNTED[quantity](table, row) if quantity in COUNTED else None
    if ours is None:
        return PublishedEntry(table, row, quantity, value, None, "the paper's")
    if as_printed(ours, value):
        return PublishedEntry(table, row, quantity, value, ours, "matches")
    reason = KNOWN.get((table, row), "") if quantity == "params_M" else ""
    return PublishedEntry(table, row, quantity, value, ours, "differs", reason)


def as_printed(ours: float, value: str) -> bool:
    """Whether a number rounds to the printed digits. Integers that end in zero were rounded to two digits.

    >>> as_printed(14.984, "15.0"), as_printed(15.06, "15.0"), as_printed(122.8, "120"), as_printed(34.4, "35")
    (True, False, True, False)
    """
    digits = len(value.partition(".")[2]) if "." in value else -1 if value.endswith("0") else 0
    return round(ours, digits) == float(value)


def _parameters(table: int, row: str) -> float | None:
    return parameters(table, row) if (table, row) in networks() else None


def _flops(table: int, row: str) -> float | None:
    return flops(configuration(table, row)) if (table, row) in networks() else None


def _memory(table: int, row: str) -> float | None:
    return MEMORY.get(row)


COUNTED: dict[str, Callable[[int, str], float | None]] = {
    "params_M": _parameters,
    "flops_G": _flops,
    "memory_GB": _memory,
}
