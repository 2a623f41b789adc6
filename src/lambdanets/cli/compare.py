"""`lambdanets compare`: trains and measures all layers in one small network under one budget."""

import argparse
import dataclasses
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lambdanets.cli.output import say
from lambdanets.cli.parser import Subparsers, UserError, add_command, positive
from lambdanets.cli.run_argument import SETTINGS, about_runs

if TYPE_CHECKING:
    from lambdanets.bench.compare.contest import Contest

CONTESTS = {
    "layers": "all layers of the family (Tables 3 and 4)",
    "terms": "content, position, both (Table 8)",
    "scopes": "windows of the position lambdas (Table 9)",
    "norms": "normalised keys, queries and values (Table 10)",
    "depths": "k, h and u (Table 11)",
}


def add_parser(commands: Subparsers) -> None:
    parser = add_command(
        commands, "compare", "train and measure all layers in the same small network under the same budget", run
    )
    described = "; ".join(f"{name}: {what}" for name, what in CONTESTS.items())
    parser.add_argument("contest", nargs="?", default="layers", metavar="CONTEST", help=described)
    parser.add_argument(
        SETTINGS, nargs="*", metavar="KEY=VALUE", help="changes for all runs, as in lambdanets train: data.root=FOLDER"
    )
    parser.add_argument("--data", choices=("digits", "fashion-mnist", "cifar10"), default="digits")
    parser.add_argument("--only", metavar="A,B", help="run only these entries")
    parser.add_argument(
        "--seeds", type=positive, metavar="N", help="runs of each entry (default: 3, or 1 with --quick)"
    )
    parser.add_argument("--quick", action="store_true", help="a few epochs on digits, to try the command")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="folder for runs and results (default: runs/compare-CONTEST-DATA)"
    )


def run(options: argparse.Namespace) -> None:
    with about_runs():
        from lambdanets.bench.compare.budget import BUDGETS, QUICK
        from lambdanets.bench.compare.contest import Contest
        from lambdanets.bench.compare.entries import CONTESTS as ENTRIES
        from lambdanets.bench.compare.entries import distinct
        from lambdanets.bench.compare.runs import OtherRunError
        from lambdanets.cli.terminal import progress_bar

        if "=" in options.contest:  # no contest, only changes
            options.settings.insert(0, options.contest)
            options.contest = "layers"
        if options.contest not in CONTESTS:
            raise UserError(f"unknown comparison {options.contest}; choose from {', '.join(CONTESTS)}")
        if options.quick and options.data != "digits":
            raise UserError(f"--quick runs on digits only, got --data {options.data}")
        budget = QUICK if options.quick else BUDGETS[options.data]
        contest = Contest(
            chosen(distinct(ENTRIES[options.contest](), budget.image_size), options.only),
            budget,
            options.seeds or (1 if options.quick else 3),
            options.out or Path("runs") / f"compare-{options.contest}-{'quick' if options.quick else options.data}",
            options.settings,
        )
        with progress_bar() as bar:
            task = bar.add_task("", total=contest.steps)
            try:
                rows = contest.run(
                    published(), lambda what: bar.update(task, description=what), lambda: bar.advance(task)
                )
            except OtherRunError as error:
                raise UserError(str(error)) from error
        report(rows, contest, options)


def report(rows: list[dict[str, Any]], contest: "Contest", options: argparse.Namespace) -> None:
    from lambdanets.bench.compare.picture import draw_comparison
    from lambdanets.bench.compare.summary import as_csv
    from lambdanets.bench.machine import describe_machine
    from lambdanets.cli.terminal import wide_console
    from lambdanets.files import write_atomically

    command = shlex.join(["lambdanets", *options.arguments])
    shared = contest.shared
    whole = {
        "machine": describe_machine(quick=options.quick),
        "command": command,
        "shared": dataclasses.asdict(shared),
        "rows": rows,
    }
    images = "all" if shared.data.limit is None else f"{shared.data.limit:,}"
    recipe, epochs = contest.budget.recipe, shared.trainer.max_epochs
    title = f"{command}: {epochs} epochs of {images} images of {recipe}, {contest.seeds} seed(s)"
    write_atomically(contest.out / "results.json", f"{json.dumps(whole, indent=1)}\n".encode())
    write_atomically(contest.out / "results.csv", as_csv(rows).encode())
    draw_comparison(rows, title, contest.out / "results.png")
    wide_console().print(shown(rows, title))
    say(f"wrote results.csv, results.json, results.png and the runs to {contest.out}")


def chosen(entries: list[Any], only: str | None) -> list[Any]:
    if only is None:
        return entries
    wanted = [name.strip() for name in only.split(",")]
    known = [entry.name for entry in entries]
    if unknown := [name for name in wanted if name not in known]:
        raise UserError(f"unknown entries {', '.join(unknown)}; choose from {', '.join(known)}")
    return [entry for entry in entries if entry.name in wanted]


def published() -> dict[tuple[int, str, str], float]:
    from lambdanets.paper.tables import published as figures

    return {(table, row, what): float(value) for table, row, what, value in figures()}


def shown(rows: list[dict[str, Any]], title: str) -> Any:
    from lambdanets.cli.tables import MISSING, number, table

    made = table(
        title,
        *(
            "layer",
            "accuracy, %",
            "parameters",
            "MFLOPs",
            "images/s",
            "training",
            "peak MB",
            "published: row",
            "M",
            "top-1",
        ),
    )
    for row in rows:
        accuracy = "diverged" if row["accuracy"] is None else f"{100 * row['accuracy']:.2f}"
        spread = "" if row["spread"] is None else f" +- {100 * row['spread']:.2f}"
        peak = row["training_peak_bytes"]
        made.add_row(
            row["entry"],
            accuracy + spread,
            f"{row['parameters']:,}",
            number(row["flops"] / 1e6, 1),
            number(row["inference_images_per_second"], 0),
            number(row["training_images_per_second"], 0),
            MISSING if peak is None else f"{peak / 1e6:.0f}",
            row["published_row"] or MISSING,
            number(row["published_params_M"], 1),
            number(row["published_top1"], 1),
        )
    return made
