"""Every published figure beside ours, where it is a matter of counting; accuracies and throughputs are the paper's."""

import csv
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

import torch

from lambdanets.bench.job import Track, untracked
from lambdanets.cost import count, totals
from lambdanets.models import ResNet, create_model
from lambdanets.paper.memory import MEMORY
from lambdanets.paper.networks import KNOWN, networks

Verdict = Literal["matches", "differs", "the paper's"]


@dataclass(frozen=True)
class Entry:
    """One figure of a table."""

    table: int
    row: str
    quantity: str
    published: str  # as printed
    ours: float | None
    verdict: Verdict
    reason: str = ""  # why it differs, if that is known


def regenerate(table: int | None = None, track: Track = untracked) -> list[Entry]:
    """All figures of one table, or of all; `track` sees them pass.

    >>> [entry.verdict for entry in regenerate(9) if entry.quantity == "flops_G"]
    ['matches', 'matches', 'matches', 'matches', 'matches', 'matches']
    """
    wanted = [figure for figure in published() if table is None or figure[0] == table]
    return [entry(*figure) for figure in track(wanted)]


def published() -> Iterable[tuple[int, str, str, str]]:
    lines = (files("lambdanets.paper") / "published.csv").read_text().splitlines()
    for row in csv.DictReader(lines):
        yield int(row["table"]), row["row"], row["quantity"], row["value"]


def entry(table: int, row: str, quantity: str, value: str) -> Entry:
    ours = COUNTED[quantity](table, row) if quantity in COUNTED else None
    if ours is None:
        return Entry(table, row, quantity, value, None, "the paper's")
    if as_printed(ours, value):
        return Entry(table, row, quantity, value, ours, "matches")
    reason = KNOWN.get((table, row), "") if quantity == "params_M" else ""
    return Entry(table, row, quantity, value, ours, "differs", reason)


def as_printed(ours: float, value: str) -> bool:
    """Does it round to the digits that were printed? Whole numbers that end in zeros were rounded to two figures.

    >>> as_printed(14.984, "15.0"), as_printed(15.06, "15.0"), as_printed(122.8, "120"), as_printed(34.4, "35")
    (True, False, True, False)
    """
    digits = len(value.partition(".")[2]) if "." in value else -1 if value.endswith("0") else 0
    return round(ours, digits) == float(value)


def network(table: int, row: str) -> ResNet | None:
    """A row's network, without memory, if it is one of ours."""
    found = networks().get((table, row))
    if found is None:
        return None
    name, changes = found
    with torch.device("meta"):
        return create_model(name, **changes)


def _parameters(table: int, row: str) -> float | None:
    model = network(table, row)
    return None if model is None else sum(p.numel() for p in model.parameters()) / 1e6


def _flops(table: int, row: str) -> float | None:
    model = network(table, row)
    if model is None:
        return None
    side = model.config.image_size
    return totals(count(model, (1, model.config.in_chans, side, side)))[1] / 1e9


def _memory(table: int, row: str) -> float | None:
    return MEMORY.get(row)


COUNTED: dict[str, Callable[[int, str], float | None]] = {
    "params_M": _parameters,
    "flops_G": _flops,
    "memory_GB": _memory,
}
