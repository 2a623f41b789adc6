"""`lambdanets runs`: lists all runs."""

import argparse

from lambdanets.cli.output import say, say_json
from lambdanets.cli.parser import Subparsers, add_command
from lambdanets.cli.run_argument import about_runs, add_runs_option

SHOWN = ("epochs", "task", "model", "parameters", "data", "score", "unit", "units_per_second", "seconds")


def add_parser(commands: Subparsers) -> None:
    parser = add_command(commands, "runs", "list all runs with their task, model, data and score", run)
    add_runs_option(parser)
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each run instead of a table")


def run(options: argparse.Namespace) -> None:
    with about_runs():
        from lambdanets.cli.tables import MISSING, number, table
        from lambdanets.cli.terminal import wide_console
        from lambdanets.runs import RunError, all_runs
        from lambdanets.tasks import task_class

        shown = table(
            "", "run", "task", "model", "data", "parameters", "epochs", "score", "units/s", "minutes", "state"
        )
        damaged = []
        for one in all_runs(options.runs):
            try:
                found = one.progress()
            except RunError as error:
                damaged.append(f"{one.path.name}: {error}")
                if options.json:
                    say_json({"run": str(one.path), "state": "damaged", "error": str(error)})
                continue
            score = task_class(found.task).score
            state = "finished" if found.finished else "unfinished"
            if options.json:
                figures = {"run": str(one.path), "state": state, score.column.removeprefix("val_"): found.score}
                say_json(figures | {name: getattr(found, name) for name in SHOWN})
            rate = number(found.units_per_second, 0)
            shown.add_row(
                one.path.name,
                found.task,
                found.model,
                found.data,
                f"{found.parameters:,}",
                f"{found.epochs}",
                MISSING if found.score is None else f"{score.label} {score.show(found.score)}",
                rate if found.units_per_second is None else f"{rate} {found.unit}",
                number(found.seconds / 60, 1),
                state,
            )
        if options.json:
            return
        if shown.row_count:
            wide_console().print(shown)
        say(*damaged)
        if not shown.row_count and not damaged:
            say(f"no runs in {options.runs}; start one with lambdanets train digits")
