"""RUN, the argument of every command on a run, and the folder of all runs."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lambdanets.cli.parser import Parser, UserError, from_extra

if TYPE_CHECKING:
    from lambdanets.runs import RunFolder


# KEY=VALUE arguments.
SETTINGS = "settings"


def add_runs_option(parser: Parser) -> None:
    parser.add_argument("--runs", type=Path, default=Path("runs"), metavar="FOLDER", help="folder of all runs")


def add_run_argument(parser: Parser) -> None:
    parser.add_argument("run_name", metavar="RUN", help="folder or name of a run, or latest")
    add_runs_option(parser)


@contextmanager
def about_runs() -> Iterator[None]:
    """Turn the errors of training, evaluation and prediction that users can fix into one line."""
    with from_extra("train"):
        from lambdanets.data import DataError
        from lambdanets.models.checkpoint import CheckpointError
        from lambdanets.runs import RunError
        from lambdanets.train.checkpointing import StoppedError
        from lambdanets.train.checkpoints import DamagedCheckpointError
        from lambdanets.train.config import ConfigError
        from lambdanets.train.guard import NonFiniteLossError
        from lambdanets.train.strategies import LostProcessError

        try:
            yield
        except (ConfigError, RunError) as error:
            raise UserError(str(error)) from error
        except (DataError, CheckpointError, DamagedCheckpointError, NonFiniteLossError, LostProcessError) as error:
            raise UserError(str(error), code=1) from error
        except StoppedError as error:
            raise UserError(str(error), code=error.exit_code) from error
        except OSError as error:
            if error.filename is None:
                raise
            raise UserError(f"{error.filename} cannot be written or read: {error.strerror}", code=1) from error


def run_from(options: argparse.Namespace) -> "RunFolder":
    from lambdanets.runs import find_run

    return find_run(options.run_name, options.runs)
