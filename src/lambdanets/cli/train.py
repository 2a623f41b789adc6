"""`lambdanets train`: trains a network by a recipe and writes a run folder."""

import argparse
import ctypes
import os
import signal
import sys
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from lambdanets.cli.output import say
from lambdanets.cli.parser import Subparsers, UserError, add_command, positive
from lambdanets.cli.run_argument import SETTINGS, about_runs, add_runs_option

if TYPE_CHECKING:
    from lambdanets.runs import Result, RunFolder

# The first process passes the run folder to those it starts, which would otherwise choose the next free name.
STARTED_BY = "LAMBDANETS_RUN_FOLDER"
FIRST = "LAMBDANETS_FIRST_PROCESS"


def add_parser(commands: Subparsers) -> None:
    parser = add_command(commands, "train", "train a network from a recipe, or resume a run", run)
    parser.add_argument(
        "recipe",
        nargs="?",
        metavar="RECIPE",
        help=f"{', '.join(recipe_names())}, or a .yaml file, such as config.yaml of a run",
    )
    parser.add_argument(
        SETTINGS,
        nargs="*",
        metavar="KEY=VALUE",
        help="changes to the recipe, such as data.root=pictures optim.lr=0.05 trainer.max_epochs=1; sections are "
        "model, data, optim and trainer (arguments of Lightning's Trainer)",
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="a .yaml file with changes, applied before KEY=VALUE"
    )
    parser.add_argument("--name", help="name of the run (default: that of the recipe, numbered if taken)")
    parser.add_argument("--resume", metavar="RUN", help="resume a run: its folder, its name, or latest")
    parser.add_argument("--devices", type=positive, metavar="N", help="the same as trainer.devices=N")
    parser.add_argument("--nodes", type=positive, metavar="N", help="the same as trainer.num_nodes=N")
    parser.add_argument(
        "--dry-run", action="store_true", help="print the configuration without opening the data, and exit"
    )
    add_runs_option(parser)


def recipe_names() -> list[str]:
    """The names of recipes, without importing the packages that training needs."""
    recipes = files("lambdanets") / "runs" / "recipes"
    return sorted(file.name.removesuffix(".yaml") for file in recipes.iterdir())


def run(options: argparse.Namespace) -> None:
    with about_runs():
        from lambdanets.cli.terminal import progress_console
        from lambdanets.runs import as_yaml, read_config, resolve, train
        from lambdanets.runs.complete import planned

        changes = list(options.settings)
        if options.recipe is not None and "=" in options.recipe:  # no recipe, only changes
            changes.insert(0, options.recipe)
            options.recipe = None
        if options.resume and options.recipe is not None:
            raise UserError(f"--resume uses the recipe of the run; remove {options.recipe}")
        options.recipe = options.recipe or "digits"
        for option, key in (("devices", "devices"), ("nodes", "num_nodes")):
            if getattr(options, option) is not None:
                changes.append(f"trainer.{key}={getattr(options, option)}")
        folder = folder_for(options)
        recipe = folder.config_file if options.resume else options.recipe
        if options.resume:
            read_config(folder.config_file)  # so that errors name this file
        config = resolve(recipe, changes, options.config)
        if options.dry_run:
            say(*as_yaml(planned(config)).splitlines())
            return
        result = train(config, folder, resume=bool(options.resume), console=progress_console())
    if result is not None:
        tell(result, folder)


def folder_for(options: argparse.Namespace) -> "RunFolder":
    from lambdanets.runs import RunFolder, find_run, free_name

    if STARTED_BY in os.environ and os.environ.get("LOCAL_RANK", "0") != "0":
        end_with_the_first()
        return RunFolder(Path(os.environ[STARTED_BY]))
    if options.resume:
        folder = find_run(options.resume, options.runs)
    elif options.name is not None:
        check_name(options.name)
        folder = RunFolder(options.runs / options.name)
        if folder.is_run and int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0"))) == 0:
            raise UserError(f"{folder.path} already has a run: choose another --name, or use --resume")
    elif int(os.environ.get("WORLD_SIZE", os.environ.get("SLURM_NTASKS", "1"))) > 1:
        raise UserError("several processes need the same folder: set --name")
    else:
        folder = RunFolder(free_name(options.runs, Path(options.recipe).stem))
    os.environ[STARTED_BY] = str(folder.path.resolve())
    os.environ[FIRST] = str(os.getpid())
    return folder


def check_name(name: str) -> None:
    """A name is a single folder in that of all runs; `latest` is reserved for the newest run."""
    if name in ("", ".", "..", "latest") or Path(name).name != name:
        raise UserError(f"--name must be the name of a folder in --runs, and not latest, got {name!r}")


def end_with_the_first() -> None:
    """Kill this process when the first one ends. Linux only; elsewhere it waits until its communication times out."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.getppid() != int(os.environ[FIRST]):  # the first process has ended already
            sys.exit(1)


def tell(result: "Result", folder: "RunFolder") -> None:
    from lambdanets.tasks import task_class
    from lambdanets.train.skips import count_names

    description, task = result.description, task_class(result.description.task)
    say(
        f"{description.model}, {description.parameters:,} parameters, "
        f"{description.epochs} epoch{'' if description.epochs == 1 else 's'} in "
        f"{description.seconds:.0f} s: {description.units_per_second:,.0f} {description.unit}/s, "
        f"{description.waiting_share:.1%} of the time waiting for data"
    )
    say(result.report)
    skipped = folder.path / "skipped.csv"
    if skipped.is_file():
        say(f"{count_names(skipped)} {task.items} were unreadable and skipped; see {skipped}")
    names = ("curves.png", *task.pictures, "metrics.csv", "config.yaml", "model", "tensorboard")
    say(f"wrote {', '.join(names)} to {folder.path}")
