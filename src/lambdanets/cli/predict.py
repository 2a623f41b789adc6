"""`lambdanets predict`: predicts with a trained network."""

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from lambdanets.cli.output import complain, say_json
from lambdanets.cli.parser import Subparsers, UserError, add_command, positive
from lambdanets.cli.run_argument import about_runs, add_run_argument, run_from

if TYPE_CHECKING:
    from lambdanets.train.task import Prediction


def add_parser(commands: Subparsers) -> None:
    parser = add_command(commands, "predict", "predict with a trained run, such as the classes of images", run)
    add_run_argument(parser)
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help='for classification: image files, folders, or quoted patterns such as "pictures/**/*.jpg"',
    )
    parser.add_argument("--top", type=positive, default=5, metavar="N", help="number of classes to show for each input")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each input instead of a table")


def run(options: argparse.Namespace) -> None:
    with about_runs():
        from lambdanets.runs import Predictor

        predictor = Predictor(run_from(options))
        for complaint in predictor.complaints:
            complain(f"skipped: {complaint}")
        predictions = predictor.predict(options.inputs, top=options.top)
        failed = (as_json if options.json else as_table)(predictions)
    if failed:
        raise UserError(f"unreadable inputs: {failed}", code=1)


def as_json(predictions: Iterable["Prediction"]) -> int:
    """Print each prediction at once; return the number of unreadable inputs."""
    failed = 0
    for prediction in predictions:
        failed += prediction.error is not None
        say_json(prediction.as_json())
    return failed


def as_table(predictions: Iterable["Prediction"]) -> int:
    from rich.box import SIMPLE_HEAD
    from rich.table import Column, Table

    from lambdanets.cli.terminal import wide_console

    shown, failed = Table(Column("input", overflow="fold"), box=SIMPLE_HEAD, pad_edge=False), 0
    for prediction in predictions:
        if prediction.error is not None:
            failed += 1
            complain(f"{prediction.input}: {prediction.error}")
            continue
        cells = prediction.cells()
        while len(shown.columns) <= len(cells):
            shown.add_column(str(len(shown.columns)), no_wrap=True)
        shown.add_row(prediction.input, *cells)
    if shown.row_count:
        wide_console().print(shown)
    return failed
