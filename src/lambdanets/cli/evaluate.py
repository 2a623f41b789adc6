"""`lambdanets eval`: evaluates a run on its validation data."""

import argparse
import json
from pathlib import Path

from lambdanets.cli.output import complain, say
from lambdanets.cli.parser import Subparsers, add_command, check_writable, write
from lambdanets.cli.run_argument import SETTINGS, about_runs, add_run_argument, run_from


def add_parser(commands: Subparsers) -> None:
    parser = add_command(commands, "eval", "evaluate a run on its validation data, or on other data", run)
    add_run_argument(parser)
    parser.add_argument(
        SETTINGS, nargs="*", metavar="KEY=VALUE", help="changes to the data, such as data.root=other/pictures"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file, as JSON")


def run(options: argparse.Namespace) -> None:
    check_writable("--json", options.json)
    with about_runs():
        from lambdanets.runs import evaluate_run

        folder = run_from(options)
        report = evaluate_run(folder, options.settings, lambda complaint: complain(f"skipped: {complaint}"))
    if options.json is not None:
        write(options.json, f"{json.dumps(report.figures(), indent=2)}\n")
    say(f"{folder.path}: {report}")
