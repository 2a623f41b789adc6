"""The command `lambdanets` and its subcommands."""

import argparse
import os
import sys
from collections.abc import Sequence

import lambdanets
from lambdanets.cli import bench, compare, evaluate, export, info, paper, plan, predict, profile, runs, train
from lambdanets.cli.output import complain, escape_what_cannot_be_encoded
from lambdanets.cli.parser import Parser, UserError
from lambdanets.cli.run_argument import SETTINGS


def make_parser() -> Parser:
    parser = Parser(
        prog="lambdanets",
        description="Lambda layers and attention for PyTorch: train, evaluate, profile, export and benchmark.",
    )
    parser.add_argument("--version", action="version", version=f"lambdanets {lambdanets.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in (info, plan, profile, paper, bench, export, train, evaluate, predict, runs, compare):
        command.add_parser(commands)
    return parser


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse, and allow KEY=VALUE anywhere among the options of a command, which argparse alone does not."""
    parser = make_parser()
    options, rest = parser.parse_known_args(arguments)
    settings = [text for text in rest if "=" in text and not text.startswith("-")]
    if len(settings) < len(rest) or (rest and not hasattr(options, SETTINGS)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        setattr(options, SETTINGS, [*getattr(options, SETTINGS), *settings])
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command. Errors that users can fix are one line on stderr, without a traceback."""
    escape_what_cannot_be_encoded()
    options = parse(arguments)
    options.arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        options.run(options)
        sys.stdout.flush()
    except UserError as error:
        complain(f"{options.prog}: {error}")
        sys.exit(error.code)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate" not in str(error):  # torch has no class for this error
            raise
        complain(f"{options.prog}: out of memory: use a smaller size or batch")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        give_up_output()
        if isinstance(error, BrokenPipeError):  # the reader has closed the pipe
            sys.exit(141)
        complain(f"{options.prog}: {error}")
        sys.exit(1)


def give_up_output() -> None:
    """Discard output that cannot be written; otherwise Python would fail again when it exits."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
