"""The worst mistakes as a picture."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jaxtyping import UInt8
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from lambdanets.train.figures import (
    GREY,
    INCH,
    MARGIN,
    SMALL,
    TINY,
    message,
    missing_glyphs_allowed,
    new_figure,
    percent,
    place,
    save,
    shorten,
    width,
)

COLUMNS, SHOWN = 6, 24
CELL, IMAGE = 2.1, 1.9  # inches
CELL_TEXT = CELL * INCH - 10  # points


@dataclass(frozen=True)
class Mistake:
    """A misclassified image."""

    image: UInt8[Tensor, "c i j"]  # grey or RGB
    name: str
    label: str
    guess: str
    guess_probability: float
    label_probability: float


def draw_mistakes(worst: Sequence[Mistake], path: Path) -> None:
    """The images whose own class had the least probability."""
    with missing_glyphs_allowed():
        save(mistakes(worst), path)


def mistakes(worst: Sequence[Mistake]) -> Figure:
    """A grid, the largest loss first."""
    if not worst:
        return message("No mistakes: every image was given its own class.")
    shown = sorted(worst, key=lambda mistake: mistake.label_probability)[:SHOWN]
    columns = min(COLUMNS, len(shown))
    rows = math.ceil(len(shown) / columns)
    pitch = CELL + MARGIN  # names and titles have their lines
    figure = new_figure(CELL * columns, pitch * rows + MARGIN)
    for n, mistake in enumerate(shown):
        row, column = divmod(n, columns)
        left, below = CELL * column + (CELL - IMAGE) / 2, pitch * (rows - 1 - row) + MARGIN / 2
        draw_mistake(place(figure, left, below, IMAGE, IMAGE), mistake)
    figure.text(0.5, 1 - 0.1 / figure.get_figheight(), "worst mistakes first", ha="center", va="top", fontsize=10)
    return figure


def draw_mistake(axes: Axes, mistake: Mistake) -> None:
    axes.imshow(mistake.image.permute(1, 2, 0).cpu().numpy(), cmap="gray", vmin=0, vmax=255)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    guess, label = percent(mistake.guess_probability), percent(mistake.label_probability)
    lines = (named("", mistake.guess, f" ({guess}),"), named("is ", mistake.label, f" ({label})"))
    line = " ".join(lines)
    axes.set_title(line if width(line, SMALL) <= CELL_TEXT else "\n".join(lines), fontsize=SMALL)
    axes.set_xlabel(shorten(mistake.name, CELL_TEXT, TINY), fontsize=TINY, color=GREY)


def named(before: str, name: str, after: str) -> str:
    """One line over an image; the name gets what the rest leaves."""
    return before + shorten(name, CELL_TEXT - width(before + after, SMALL), SMALL) + after
