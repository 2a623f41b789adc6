"""Output of the commands. Names of classes, files and runs are untrusted, so escape sequences are not printed."""

import io
import json
import sys
import unicodedata
from typing import Any

# Control characters, which start escape sequences; marks that change the text direction; surrogates; line separators.
UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
JOINERS = "\u200c\u200d"  # which some scripts need between letters
LONGEST = 5000  # characters of a line, longer than any path


def safe(text: object) -> str:
    """One line of printable text; other characters are escaped as in Python.

    >>> print(safe("\\x1b[31mred"), safe("two\\nlines"), safe("\\u202egnp.exe"), safe("naïve 猫"))
    \\x1b[31mred two\\nlines \\u202egnp.exe naïve 猫
    """
    line = str(text)
    if len(line) > LONGEST:
        line = f"{line[:LONGEST]}…"
    if line.isascii() and line.isprintable():
        return line
    return "".join(escaped(character) for character in line)


def escaped(character: str) -> str:
    if unicodedata.category(character) not in UNSAFE or character in JOINERS:
        return character
    return character.encode("unicode_escape", errors="backslashreplace").decode()


def say(*lines: object) -> None:
    """Print lines to stdout."""
    for line in lines:
        print(safe(line))


def complain(*lines: object) -> None:
    """Print lines to stderr."""
    for line in lines:
        print(safe(line), file=sys.stderr)


def say_json(value: Any) -> None:
    """Print one line of JSON to stdout, with all characters that are not ASCII escaped, and never truncated."""
    print(json.dumps(value), flush=True)


def escape_what_cannot_be_encoded() -> None:
    """Escape characters that the terminal cannot encode, where Python would raise an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
