"""All that the commands print. Others chose the names of classes, files and runs, and terminals obey what they hold."""

import io
import json
import sys
import unicodedata
from typing import Any

# Control characters, which begin escape sequences; marks that change the direction of text; halves of surrogate pairs;
# separators of lines.
UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
JOINERS = "\u200c\u200d"  # which some scripts need between letters
LONGEST = 5000  # characters of a line: more than any path has


def safe(text: object) -> str:
    """One line that no terminal takes for a command: what is not to be printed is written as Python writes it.

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
    """On stdout, each on a line of its own."""
    for line in lines:
        print(safe(line))


def complain(*lines: object) -> None:
    """On stderr, each on a line of its own."""
    for line in lines:
        print(safe(line), file=sys.stderr)


def say_json(value: Any) -> None:
    """On stdout, as a line of JSON: that escapes everything that is not ASCII, and is never cut."""
    print(json.dumps(value), flush=True)


def escape_what_cannot_be_encoded() -> None:
    """A terminal without UTF-8 gets escapes for letters it does not have, where Python would raise an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
