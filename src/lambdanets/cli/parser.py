"""What all subcommands share: one line for a mistake, sizes such as 56x40, missing packages."""

import argparse
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from lambdanets.cli.output import safe
from lambdanets.files import can_be_written, write_atomically
from lambdanets.optional import install_hint

Run = Callable[[argparse.Namespace], None]
# argparse has no public name for what add_subparsers returns.
Subparsers = Any


class UserError(Exception):
    """Something that the user can put right, told in one line; `code` is what the command exits with."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


class Parser(argparse.ArgumentParser):
    """Says what is wrong without repeating the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, safe(f"{self.prog}: {message} (see {self.prog} --help)") + "\n")


class Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Shows the defaults that say something: not that of a switch, nor of an option that is absent."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, False) else super()._get_help_string(action)


def add_command(commands: Subparsers, name: str, summary: str, run: Run | None = None) -> Parser:
    parser: Parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        formatter_class=Formatter,
    )
    if run is not None:  # a command of commands has none of its own
        parser.set_defaults(run=run, prog=parser.prog)
    return parser


def sizes(text: str) -> tuple[int, ...]:
    """
    >>> sizes("56"), sizes("56x40")
    ((56,), (56, 40))
    """
    if not re.fullmatch(r"\d+(x\d+)*", text):
        raise argparse.ArgumentTypeError(f"must be like 56 or 56x40, got {text!r}")
    return tuple(map(int, text.split("x")))


def image_size(text: str) -> tuple[int, int]:
    """
    >>> image_size("224"), image_size("224x160")
    ((224, 224), (224, 160))
    """
    numbers = sizes(text)
    if len(numbers) > 2 or min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"must be like 224 or 224x160, got {text!r}")
    return numbers[0], numbers[-1]


def check_writable(option: str, path: Path | None) -> None:
    """Before anything takes long."""
    if path is not None and not can_be_written(path):
        raise UserError(f"{option} {path} is a folder, or in none that can be written to")


def write(path: Path, text: str) -> None:
    try:
        write_atomically(path, text.encode())
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}", code=1) from error


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer, got {text!r}")
    return int(text)


def seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not number >= 0:
        raise argparse.ArgumentTypeError(f"must be a number of seconds, got {text!r}")
    return number


@contextmanager
def from_extra(extra: str) -> Iterator[None]:
    """Around imports of optional packages: a missing one is one sentence that says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "a package").partition(".")[0]
        wanted = "stream" if package in ("datasets", "webdataset") else extra
        raise UserError(f"{package} is not installed: {install_hint(wanted)}", code=1) from error
