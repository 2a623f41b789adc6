"""Consoles for tables, and progress bars for jobs."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from lambdanets.bench.job import Job, Row
from lambdanets.cli.output import safe

NARROWEST, UNLIMITED = 130, 10_000


class SafeConsole(Console):
    """Prints untrusted names as plain text: no markup, no emoji, no escape sequences.

    Rich converts every string with `render_str` before it measures and arranges it.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(safe(text), **options)


def wide_console() -> Console:
    """A console that does not truncate tables: a narrow terminal wraps them, files and pipes have no limit."""
    console = SafeConsole()
    console.width = max(console.width, NARROWEST) if console.is_terminal else UNLIMITED
    return console


def progress_console() -> Console:
    """On stderr, so that stdout has the table alone."""
    return SafeConsole(stderr=True)


def progress_bar() -> Progress:
    """Shown on terminals only, not in logs."""
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
