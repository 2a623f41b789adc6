"""Measured and published speeds, as text for a table."""

from collections.abc import Iterable

from lambdanets.paper.measure import Measured
from lambdanets.paper.tables import printed, published

COLUMNS = ("row", "images", "images/s here", "ratio", "on TPUs (the paper's)", "ratio", "peak of training, MB")
Line = tuple[str | None, ...]


def heading(table: int) -> str:
    which = " with global lambda layers" if table == 4 else ""
    return f"Table {table} on this machine{which}; ratios are relative to the first measured network"


def comparison(table: int, measured: Iterable[Measured]) -> list[Line]:
    """The rows of a table with measured and published speeds; rows without a network of ours are not measured."""
    here = {m.row: m for m in measured if m.table == table}
    throughputs, first = printed(table, "throughput_ex_s"), next(iter(here))
    lines: list[Line] = []
    for row in dict.fromkeys(row for which, row, _, _ in published() if which == table):
        theirs: Line = (None, None)
        if row in throughputs:
            theirs = (f"{throughputs[row]:.0f}", f"{throughputs[row] / throughputs[first]:.2f}")
        if row in here:
            m = here[row]
            images, megabytes = f"{m.image_size} x {m.image_size}", None
            if m.peak_bytes is not None:
                megabytes = f"{m.peak_bytes / 1e6:.0f}"
            lines.append((row, images, f"{m.images_per_s:.2f}", f"{m.ratio:.2f}", *theirs, megabytes))
        else:
            lines.append((f"{row} (not measured)", None, None, None, *theirs, None))
    return lines
