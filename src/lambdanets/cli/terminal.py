"""Where a benchmark is seen: a progress bar over its jobs while it runs, tables afterwards."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from lambdanets.bench.job import Job, Row
from lambdanets.cli.output import safe

NARROWEST, UNLIMITED = 130, 10_000


class SafeConsole(Console):
    """Prints names that others chose as they are: no markup, no emoji, and nothing that a terminal would obey.

    Rich makes text of every string here, before it measures and arranges it.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(safe(text), **options)


def wide_console() -> Console:
    """A table that is cut to a narrow terminal has lost numbers; one that the terminal wraps has not.

    A file or a pipe has no width.
    """
    console = SafeConsole()
    console.width = max(console.width, NARROWEST) if console.is_terminal else UNLIMITED
    return console


def progress_console() -> Console:
    """On stderr, and gone afterwards: the table alone is the output."""
    return SafeConsole(stderr=True)


def progress_bar() -> Progress:
    """For whoever watches: a log gets no empty lines."""
    columns = (BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    console = progress_console()
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def run_jobs(jobs: Sequence[Job]) -> list[Row]:
    with progress_bar() as bar:
        task = bar.add_task("", total=sum(job.steps for job in jobs))

        def track(items: Iterable[Any]) -> Iterator[Any]:
            for item in items:
                yield item
                bar.advance(task)

        rows = []
        for job in jobs:
            bar.update(task, description=job.label)
            rows.append(job.run(track))
    return rows
