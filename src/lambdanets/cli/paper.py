"""`lambdanets paper`: the tables of the paper, what it prints beside what we count."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from lambdanets.cli.parser import Subparsers, UserError, add_command, from_extra

QUANTITIES = {
    "params_M": "parameters, M",
    "flops_G": "FLOPs, G",
    "memory_GB": "memory, GB",
    "top1": "top-1, %",
    "throughput_ex_s": "throughput on TPUs, examples/s",
}


def add_parser(commands: Subparsers) -> None:
    parser = add_command(commands, "paper", "the tables of the paper: what it prints, what we count, a verdict", run)
    parser.add_argument("table", nargs="?", type=int, metavar="TABLE", help="3 to 13; all of them by default")
    parser.add_argument("--json", type=Path, metavar="F", help="write the figures there")


def run(options: argparse.Namespace) -> None:
    from lambdanets.files import write_atomically
    from lambdanets.paper import regenerate
    from lambdanets.paper.tables import published

    with from_extra("bench"):
        from rich.progress import track

        from lambdanets.cli.tables import MISSING, number, table
        from lambdanets.cli.terminal import progress_console, wide_console

    tables = sorted({figure[0] for figure in published()})
    if options.table is not None and options.table not in tables:
        raise UserError(f"the paper's tables with figures are {tables[0]} to {tables[-1]}, got {options.table}")
    if options.json is not None and (options.json.is_dir() or not options.json.parent.is_dir()):
        raise UserError(f"--json {options.json} is a folder, or in none that exists")
    entries = regenerate(
        options.table, lambda figures: track(list(figures), "", console=progress_console(), transient=True)
    )
    console = wide_console()
    for which in tables:
        rows = [entry for entry in entries if entry.table == which]
        if not rows:
            continue
        shown = table(f"Table {which}", "row", "quantity", "published", "ours", "verdict")
        for column in (0, 1, 4):
            shown.columns[column].justify = "left"
        shown.columns[4].no_wrap = False  # reasons are sentences
        for entry in rows:
            ours = MISSING if entry.ours is None else number(entry.ours, 3)
            verdict = entry.verdict + (f": {entry.reason}" if entry.reason else "")
            quantity = QUANTITIES.get(entry.quantity, entry.quantity.replace("_", " "))
            shown.add_row(entry.row, quantity, entry.published, ours, verdict)
        console.print(shown)
    counted = [entry for entry in entries if entry.ours is not None]
    matches = sum(entry.verdict == "matches" for entry in counted)
    console.print(
        f"{matches} of {len(counted)} counted figures match to the printed digit; accuracies and throughputs are the "
        "paper's and were not measured here"
    )
    if options.json is not None:
        write_atomically(options.json, json.dumps([asdict(entry) for entry in entries], indent=1).encode())
