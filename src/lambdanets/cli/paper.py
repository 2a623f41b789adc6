"""`lambdanets paper`: recomputes the tables of the paper, and measures them on this machine."""

import argparse
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lambdanets.cli.parser import Subparsers, UserError, add_command, check_writable, from_extra, positive, write

if TYPE_CHECKING:
    from rich.table import Table

    from lambdanets.paper import PublishedEntry
    from lambdanets.paper.measure import Measured, Measurement

SUMMARY = "compare the tables of the paper with our own counts and measurements"


def add_parser(commands: Subparsers) -> None:
    parser = add_command(commands, "paper", SUMMARY, run)
    parser.add_argument("table", nargs="?", type=int, metavar="TABLE", help="number of a table, 2 to 13 (default: all)")
    parser.add_argument("--json", type=Path, metavar="F", help="write the results to this file, as JSON")
    parser.add_argument("--html", type=Path, metavar="F", help="write an HTML page with plots to this file")
    parser.add_argument(
        "--measure",
        action="store_true",
        help="also measure the speed and memory of Tables 4, 12 and 13 on this machine",
    )
    parser.add_argument(
        "--rounds",
        type=positive,
        help="rounds of interleaved timing in --measure; the fastest is reported (default: 5)",
    )
    parser.add_argument("--threads", type=positive, help="number of threads in --measure (default: torch's)")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="tiny images in --measure, for a smoke test; the results are not meaningful",
    )


def run(options: argparse.Namespace) -> None:
    from lambdanets.cli.terminal import wide_console
    from lambdanets.paper import regenerate
    from lambdanets.paper.entries import summary

    if options.html is not None:
        with from_extra("bench"):
            from lambdanets.paper.page import page
    check_options(options)
    entries = regenerate(options.table, tracked("counting"))
    console = wide_console()
    for shown in figures(entries):
        console.print(shown)
    measurement = measure(options) if options.measure else None
    if measurement is not None:
        for shown in speeds(measurement):
            console.print(shown)
        console.print(f"{measurement.unit}: best of interleaved rounds, float32; {measurement.machine_in_words}")
    console.print(summary(entries))
    if options.json is not None:
        write(options.json, json.dumps(report(entries, measurement), indent=1))
    if options.html is not None:
        from lambdanets.paper.sizes import count_networks

        write(options.html, page(entries, count_networks(options.table, tracked("drawing")), measurement))


def check_options(options: argparse.Namespace) -> None:
    """Check the options before anything takes long."""
    from lambdanets.paper.measure import TABLES as MEASURED
    from lambdanets.paper.tables import TABLES

    if options.table not in (None, *TABLES):
        raise UserError(f"the paper's tables with figures are {TABLES[0]} to {TABLES[-1]}, got {options.table}")
    if options.measure and options.table not in (None, *MEASURED):
        raise UserError(f"only Tables 4, 12 and 13 have throughputs to measure, got {options.table}")
    if not options.measure and (options.rounds or options.threads or options.quick):
        raise UserError("--rounds, --threads and --quick need --measure")
    if options.json is not None and options.json == options.html:
        raise UserError(f"--json and --html must be different files, got {options.json} for both")
    check_writable("--json", options.json)
    check_writable("--html", options.html)


def tracked(what: str) -> Callable[[Iterable[Any]], Iterable[Any]]:
    """A function that shows a progress bar while it passes items on."""
    from rich.progress import track

    from lambdanets.cli.terminal import progress_console

    console = progress_console()
    return lambda items: track(list(items), what, console=console, transient=True, disable=not console.is_terminal)


def figures(entries: "list[PublishedEntry]") -> "Iterable[Table]":
    from lambdanets.cli.tables import MISSING, table
    from lambdanets.paper.entries import title

    for which in dict.fromkeys(entry.table for entry in entries):
        shown = table(title(which), "row", "quantity", "published", "ours", "verdict")
        for column in (0, 1, 4):
            shown.columns[column].justify = "left"
        shown.columns[4].no_wrap = False  # reasons are sentences
        for entry in (entry for entry in entries if entry.table == which):
            ours = entry.ours_in_words or MISSING
            shown.add_row(entry.row, entry.quantity_in_words, entry.published, ours, entry.verdict_in_words)
        yield shown


def measure(options: argparse.Namespace) -> "Measurement":
    import torch

    from lambdanets.bench.job import CannotBenchmarkError
    from lambdanets.bench.machine import describe_machine
    from lambdanets.cli.terminal import run_jobs
    from lambdanets.paper.measure import Measurement, Settings, jobs

    if options.threads is not None:
        torch.set_num_threads(options.threads)
    settings = Settings(options.rounds, options.quick)
    try:
        found = run_jobs(jobs(options.table, settings))
    except CannotBenchmarkError as error:
        raise UserError(str(error), code=1) from error
    rows: list[Measured] = [measured for row in found for measured in row.values()]
    return Measurement(describe_machine(quick=options.quick), settings, rows)


def speeds(measurement: "Measurement") -> "Iterable[Table]":
    from lambdanets.cli.tables import MISSING, table
    from lambdanets.paper.comparison import COLUMNS, comparison, heading

    for which in dict.fromkeys(measured.table for measured in measurement.rows):
        shown = table(heading(which), *COLUMNS)
        shown.columns[0].justify = "left"
        for line in comparison(which, measurement.rows):
            shown.add_row(*(cell or MISSING for cell in line))
        yield shown


def report(entries: "list[PublishedEntry]", measurement: "Measurement | None") -> dict[str, Any]:
    written: dict[str, Any] = {"entries": [asdict(entry) for entry in entries]}
    if measurement is not None:
        written["measured"] = [asdict(measured) for measured in measurement.rows]
        written["settings"] = {"rounds": measurement.settings.turns, "quick": measurement.settings.quick}
        written["machine"] = measurement.machine
    return written
