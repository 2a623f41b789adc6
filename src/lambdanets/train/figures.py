"""Helpers for matplotlib: figures of exact size, shortened labels, atomic files."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from lambdanets.files import write_atomically

GREY, PALE = "#7a7a7a", "#d9d9d9"
SMALL, TINY = 8.0, 6.0
DPI = 150
INCH = 72.0  # points
MARGIN = 0.4  # inches: a line of text and some space


def percent(share: float) -> str:
    """A percentage; values close to 0 or 1 are shown as <1 % or >99 %."""
    number = f"{100 * share:.0f}"
    if number == "0" and share > 0:
        return "<1 %"
    if number == "100" and share < 1:
        return ">99 %"
    return f"{number} %"


def shorten(text: str, room: float, size: float) -> str:
    """Shorten a text to `room` points by removing its middle, because names often differ only at their ends."""
    text = shown = printable(text)
    kept = len(text)
    while kept > 1 and (wide := width(shown, size)) > room:
        kept = min(kept - 1, int(len(shown) * room / wide))
        shown = f"{text[: kept - kept // 2].rstrip()}…{text[len(text) - kept // 2 :].lstrip()}"
    return shown.replace("$", r"\$")  # otherwise matplotlib renders text between two $ as mathematics


def printable(text: str) -> str:
    """One line without unprintable characters and surrogates, which file names can contain."""
    whole = text.encode(errors="replace").decode()
    return " ".join("".join(letter if letter.isprintable() else " " for letter in whole).split())


def width(text: str, size: float) -> float:
    """Width in points."""
    across, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=size), ismath=False)
    return float(across)


@contextmanager
def missing_glyphs_allowed() -> Iterator[None]:
    """Suppress the warning for each character that matplotlib's font lacks and draws as a box."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        yield


def message(text: str) -> Figure:
    figure = new_figure(5.0, 1.2)
    figure.text(0.5, 0.5, text, horizontalalignment="center", verticalalignment="center")
    return figure


def new_figure(across: float, down: float) -> Figure:
    figure = Figure(figsize=(across, down))
    FigureCanvasAgg(figure)
    return figure


def place(figure: Figure, left: float, below: float, across: float, down: float) -> Axes:
    """A panel at an exact place in inches, because labels were shortened to fit it."""
    whole, high = figure.get_size_inches()
    return figure.add_axes((left / whole, below / high, across / whole, down / high))


def save(figure: Figure, path: Path) -> None:
    """Write a figure atomically."""
    png = BytesIO()
    figure.savefig(png, format="png", dpi=DPI)
    write_atomically(path, png.getvalue())
