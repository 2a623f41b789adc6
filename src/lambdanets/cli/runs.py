"""`lambdanets runs`: all runs at a glance."""

import argparse

from lambdanets.cli.output import say, say_json
from lambdanets.cli.parser import Subparsers, add_command
from lambdanets.cli.run_argument import about_runs, add_runs_option


def add_parser(commands: Subparsers) -> None:
    parser = add_command(commands, "runs", "a table of all runs: what was trained on what, and how well", run)
    add_runs_option(parser)
    parser.add_argument("--json", action="store_true", help="a line of JSON for each run instead of a table")


def run(options: argparse.Namespace) -> None:
    with about_runs():
        from lambdanets.cli.tables import number, table
        from lambdanets.cli.terminal import wide_console
        from lambdanets.train.folder import RunError, all_runs

        shown = table("", "run", "model", "data", "parameters", "epochs", "accuracy, %", "images/s", "minutes", "state")
        damaged = []
        for one in all_runs(options.runs):
            try:
                found = one.progress()
            except RunError as error:
                damaged.append(f"{one.path.name}: {error}")
                if options.json:
                    say_json({"run": str(one.path), "state": "damaged", "error": str(error)})
                continue
            accuracy = None if found.accuracy is None else 100 * found.accuracy
            state = "finished" if found.finished else "unfinished"
            if options.json:
                figures = {"run": str(one.path), "state": state, "accuracy": found.accuracy, "epochs": found.epochs}
                say_json(figures | {"model": found.model, "parameters": found.parameters, "data": found.data})
            shown.add_row(
                one.path.name,
                found.model,
                found.data,
                f"{found.parameters:,}",
                f"{found.epochs}",
                number(accuracy),
                number(found.images_per_second, 0),
                number(found.seconds / 60, 1),
                state,
            )
        if options.json:
            return
        if shown.row_count:
            wide_console().print(shown)
        say(*damaged)
        if not shown.row_count and not damaged:
            say(f"there are no runs in {options.runs}; lambdanets train digits makes one")
