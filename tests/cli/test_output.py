"""What the commands print is text, whatever names hold."""

import io

import pytest

from lambdanets.cli.main import main
from lambdanets.cli.output import LONGEST, safe
from lambdanets.cli.tables import table
from lambdanets.cli.terminal import SafeConsole

ESCAPES = {
    "\x1b[31mred": r"\x1b[31mred",
    "\x1b]8;;http://x\x1b\\link": r"\x1b]8;;http://x\x1b" + "\\link",
    "\x9b31m": r"\x9b31m",
    "bell\x07 back\x08 return\r": r"bell\x07 back\x08 return\r",
    "tab\t line\n delete\x7f nul\x00": r"tab\t line\n delete\x7f nul\x00",
    "\u202egnp\u2066\u200f\u061c": r"\u202egnp\u2066\u200f\u061c",
    "\u2028\u2029\x85": r"\u2028\u2029\x85",
    "\ud800\udcff": r"\ud800\udcff",
    "\ufeff\u200b\U000e0041": r"\ufeff\u200b\U000e0041",
}


@pytest.mark.parametrize("text", ESCAPES)
def test_what_terminals_obey_is_escaped(text):
    assert safe(text) == ESCAPES[text]


PLAIN = ["plain", "naïve café", "猫 кошка גáta", "\u0645\u06cc\u200c\u062e", "👩\u200d🔬", "[red]x[/red]", "a\u00a0b"]


@pytest.mark.parametrize("text", PLAIN)
def test_other_text_stays_as_it_is(text):
    assert safe(text) == text


def test_a_line_has_an_end():
    assert safe("x" * LONGEST) == "x" * LONGEST
    assert safe("x" * 10**7) == "x" * LONGEST + "…"


def test_rich_prints_names_as_they_are():
    for name in ("[red]x[/red]", "[/x]", "[link=http://x]y[/link]", ":cat:", "\x1b[31mx\u202e"):
        for is_terminal in (False, True):
            console = SafeConsole(file=io.StringIO(), force_terminal=is_terminal, width=200, color_system=None)
            made = table(f"title {name}", f"column {name}")
            made.add_row(f"cell {name}")
            console.print(made)
            console.print(f"line {name}")
            shown = console.file.getvalue().replace("\x1b[0m", "").replace("\x1b[1m", "").replace("\x1b[3m", "")
            for part in ("title", "column", "cell", "line"):
                assert f"{part} {safe(name)}" in shown


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_terminals_without_unicode_get_escapes(tmp_path, monkeypatch, encoding):
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding=encoding))
    main(["runs", "--runs", str(tmp_path / "猫\udcff")])
    name = "猫".encode() if encoding == "utf-8" else rb"\u732b"
    assert name + rb"\udcff; start one with lambdanets train digits" in written.getvalue()
