"""Drawing with matplotlib: figures of exact size, texts cut to the space they have, files that are whole or absent."""

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
MARGIN = 0.4  # inches: a line of text and some air


def percent(share: float) -> str:
    """Neither none nor all for what is only nearly so."""
    number = f"{100 * share:.0f}"
    if number == "0" and share > 0:
        return "<1 %"
    if number == "100" and share < 1:
        return ">99 %"
    return f"{number} %"


def shorten(text: str, room: float, size: float) -> str:
    """As much of both ends as fits into so many points: names often differ only at their ends."""
    text = shown = printable(text)
    kept = len(text)
    while kept > 1 and (wide := width(shown, size)) > room:
        kept = min(kept - 1, int(len(shown) * room / wide))
        shown = f"{text[: kept - kept // 2].rstrip()}…{text[len(text) - kept // 2 :].lstrip()}"
    return shown.replace("$", r"\$")  # or matplotlib reads what is between two as mathematics


def printable(text: str) -> str:
    """On one line, and without the halves of characters that names of files can have."""
    whole = text.encode(errors="replace").decode()
    return " ".join("".join(letter if letter.isprintable() else " " for letter in whole).split())


def width(text: str, size: float) -> float:
    """In points."""
    across, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=size), ismath=False)
    return float(across)


@contextmanager
def missing_glyphs_allowed() -> Iterator[None]:
    """Names in scripts that matplotlib's own font lacks become boxes; a warning for each letter helps nobody."""
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
    """A panel exactly there, in inches: texts were cut to the room that this leaves them."""
    whole, high = figure.get_size_inches()
    return figure.add_axes((left / whole, below / high, across / whole, down / high))


def save(figure: Figure, path: Path) -> None:
    """Drawn in memory first, so that the file is whole or not there."""
    png = BytesIO()
    figure.savefig(png, format="png", dpi=DPI)
    write_atomically(path, png.getvalue())
