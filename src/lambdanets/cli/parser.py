"""Shared by all subcommands: one-line errors, arguments such as 56x40, missing packages."""

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
    """An error that the user can fix, printed as one line; `code` is the exit code."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


class Parser(argparse.ArgumentParser):
    """Reports errors without repeating the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, safe(f"{self.prog}: {message} (see {self.prog} --help)") + "\n")


class Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Shows defaults, except those of switches and of options without one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, False) else super()._get_help_string(action)


def add_command(commands: Subparsers, name: str, summary: str, run: Run | None = None) -> Parser:
    parser: Parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        formatter_class=Formatter,
    )
    if run is not None:  # None for a group of commands
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
    """Check before anything takes long."""
    if path is not None and not can_be_written(path):
        raise UserError(f"{option} {path} cannot be written: it is a folder, or its folder is missing or read-only")


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
    """Turn the missing package of an extra into an error that says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "a package").partition(".")[0]
        wanted = "stream" if package in ("datasets", "webdataset") else extra
        raise UserError(f"{package} is not installed: {install_hint(wanted)}", code=1) from error
