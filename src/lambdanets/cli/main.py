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
    parser = Parser(prog="lambdanets", description="Lambda layers for PyTorch: what is here, what it costs, how fast.")
    parser.add_argument("--version", action="version", version=f"lambdanets {lambdanets.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in (info, plan, profile, paper, bench, export, train, evaluate, predict, runs, compare):
        command.add_parser(commands)
    return parser


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """KEY=VALUE may stand anywhere among a command's options, which argparse alone does not allow."""
    parser = make_parser()
    options, rest = parser.parse_known_args(arguments)
    settings = [text for text in rest if "=" in text and not text.startswith("-")]
    if len(settings) < len(rest) or (rest and not hasattr(options, SETTINGS)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        setattr(options, SETTINGS, [*getattr(options, SETTINGS), *settings])
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; what the user can put right ends it with one line on stderr, not with a traceback."""
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
        if isinstance(error, RuntimeError) and "allocate" not in str(error):  # torch has no class of its own for it
            raise
        complain(f"{options.prog}: there is not enough memory for this size and batch")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        give_up_output()
        if isinstance(error, BrokenPipeError):  # whoever read our output has seen enough
            sys.exit(141)
        complain(f"{options.prog}: {error}")
        sys.exit(1)


def give_up_output() -> None:
    """If it cannot be written: what is left of it goes nowhere, or Python would try again when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
