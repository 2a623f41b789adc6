"""What a run leaves to look at: its curves, which classes it confuses, and its worst mistakes."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from jaxtyping import Float64, Int64, UInt8
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colorbar import Colorbar
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FuncFormatter, MaxNLocator
from torch import Tensor

from lambdanets.files import write_atomically

# Rows of `metrics.csv`. Epochs are whole numbers.
Rows = Sequence[Mapping[str, float | int]]

BLUE, ORANGE, GREEN, GREY, PALE = "#0072b2", "#d55e00", "#009e73", "#7a7a7a", "#d9d9d9"
SMALL, TINY = 8.0, 6.0
DPI = 150
INCH = 72.0  # points
MARKED = 40  # as many points of a curve can be told apart
LABEL_GAP = 0.065  # of a panel's height: one line of text
NUMBERED = 20  # with as many classes a number fits into a cell
TICKS = 50  # as many names fit beside a large matrix
PAIRS = 15
COLOURS = colormaps["Blues"].with_extremes(bad=PALE)
SCALE = PowerNorm(0.4, 0, 1)  # or rare confusions would be as white as none
NAME_WIDTH = 105.0  # points
MARGIN = 0.4  # inches: a line of text and some air
COLUMNS, SHOWN = 6, 24
CELL, IMAGE = 2.1, 1.9  # inches
CELL_TEXT = CELL * INCH - 10  # points


class Line(NamedTuple):
    """A column of the rows, and how it is drawn."""

    key: str
    colour: str
    label: Callable[[float], str]
    factor: float = 1.0


class Panel(NamedTuple):
    title: str
    lines: tuple[Line, ...]
    may_explode: bool = False


PANELS = (
    Panel(
        "loss",
        (Line("train_loss", BLUE, "training {:.3g}".format), Line("val_loss", ORANGE, "validation {:.3g}".format)),
        may_explode=True,
    ),
    Panel(
        "validation accuracy, %",
        (
            Line("val_accuracy", ORANGE, "top-1 {:.1f} %".format, 100.0),
            Line("val_accuracy_top5", GREEN, "top-5 {:.1f} %".format, 100.0),
        ),
    ),
    Panel("learning rate", (Line("lr", BLUE, "{:.2g}".format),)),
)


@dataclass(frozen=True)
class Mistake:
    """An image that was taken for another class."""

    image: UInt8[Tensor, "c i j"]  # grey or RGB
    name: str
    label: str
    guess: str
    guess_probability: float
    label_probability: float


def draw_curves(rows: Rows, path: Path) -> None:
    """Losses, accuracies and the learning rate of each epoch."""
    save(curves(rows), path)


def draw_confusion(matrix: Int64[Tensor, "k k"], classes: Sequence[str], path: Path) -> None:
    """How many images of each class (row) were taken for each class (column)."""
    with missing_glyphs_allowed():
        save(confusion(matrix, classes), path)


def draw_mistakes(worst: Sequence[Mistake], path: Path) -> None:
    """The images whose own class had the least probability."""
    with missing_glyphs_allowed():
        save(mistakes(worst), path)


def curves(rows: Rows) -> Figure:
    """A panel for each quantity that the run has so far."""
    panels = [panel for panel in PANELS if any(points(rows, line) for line in panel.lines)]
    if not panels:
        return message("No epoch has ended.")
    figure = new_figure(4.2 * len(panels), 3.3)
    figure.set_layout_engine("constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        draw_panel(axes, rows, panel)
    return figure


def draw_panel(axes: Axes, rows: Rows, panel: Panel) -> None:
    drawn = {line: each for line in panel.lines if (each := points(rows, line))}
    for line, each in drawn.items():
        marker = "o" if len(each) <= MARKED else ""
        axes.plot(*zip(*each, strict=True), color=line.colour, marker=marker, markersize=3, linewidth=1.2)
    values = [y for each in drawn.values() for _, y in each]
    if panel.may_explode and 0 < 100 * min(values) < max(values):
        axes.set_yscale("log")
    dress(axes, panel.title)
    axes.set_xlim(rows[0]["epoch"] - 0.5, rows[-1]["epoch"] + 0.5)
    label_ends(axes, {line: each[-1][1] for line, each in drawn.items()})


def dress(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("epoch", fontsize=SMALL)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    axes.tick_params(labelsize=SMALL)
    axes.grid(color="#e0e0e0", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def points(rows: Rows, line: Line) -> list[tuple[float, float]]:
    """Epochs without this quantity, or with one that is not finite, are passed over."""
    found = [(float(row["epoch"]), line.factor * row[line.key]) for row in rows if line.key in row]
    return [(x, y) for x, y in found if math.isfinite(y)]


def label_ends(axes: Axes, ends: Mapping[Line, float]) -> None:
    """Names and last values stand right of the panel, where no curve crosses them."""
    to_panel = axes.transData + axes.transAxes.inverted()
    heights = spread([float(to_panel.transform((1.0, end))[1]) for end in ends.values()], LABEL_GAP)
    for (line, end), height in zip(ends.items(), heights, strict=True):
        text = line.label(end)
        axes.text(1.01, height, text, transform=axes.transAxes, va="center", fontsize=SMALL, color=line.colour)


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Raised as far as needed to be `gap` apart, in the order they had."""
    order = sorted(range(len(heights)), key=lambda n: heights[n])
    apart = list(heights)
    for below, above in pairwise(order):
        apart[above] = max(apart[above], apart[below] + gap)
    return apart


def confusion(matrix: Int64[Tensor, "k k"], classes: Sequence[str]) -> Figure:
    """The matrix, with the pairs that are confused most listed beside it."""
    k = len(matrix)
    if len(classes) != k:
        raise ValueError(f"`classes` must name each row of the matrix, got {len(classes)} names for {k} rows")
    matrix = matrix.cpu()
    step = math.ceil(k / TICKS)
    names = [short_name(classes, n) for n in range(0, k, step)]
    lines = remarks(matrix, classes)
    side = max(3.0, 0.42 * k) if k <= NUMBERED else 8.0
    longest, listed = (max(width(text, SMALL) for text in texts) / INCH for texts in (names, lines))
    upright = longest > 0.9 * side / len(names)
    left, below = longest + MARGIN, (longest if upright else 0.15) + MARGIN
    beside = left + side + (2 * MARGIN if k > NUMBERED else 0.1)
    figure = new_figure(beside + listed + 0.2, below + side + MARGIN)
    axes = place(figure, left, below, side, side)
    draw_matrix(axes, matrix)
    axes.set_xticks(range(0, k, step), names, fontsize=SMALL, rotation=90 if upright else 0)
    axes.set_yticks(range(0, k, step), names, fontsize=SMALL)
    if k > NUMBERED:
        draw_scale(place(figure, left + side + 0.15, below, 0.15, side / 2))
    write_lines(place(figure, beside, below, listed, side), lines)
    return figure


def write_lines(axes: Axes, lines: Sequence[str]) -> None:
    axes.axis("off")
    axes.text(0, 1, "\n".join(lines), va="top", fontsize=SMALL, linespacing=1.5)


def draw_matrix(axes: Axes, matrix: Int64[Tensor, "k k"]) -> None:
    shown = row_shares(matrix)
    axes.imshow(shown.numpy(), cmap=COLOURS, norm=SCALE, interpolation="nearest")
    axes.set_title(summary(matrix), fontsize=10)
    axes.set_xlabel("taken for", fontsize=SMALL)
    axes.set_ylabel("is", fontsize=SMALL)
    if len(shown) <= NUMBERED:
        write_numbers(axes, shown)


def draw_scale(axes: Axes) -> None:
    """What the colours mean, where cells have no numbers."""
    bar = Colorbar(axes, cmap=COLOURS, norm=SCALE, ticks=[0, 0.01, 0.05, 0.2, 0.5, 1])
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda share, _: percent(share)))
    bar.ax.tick_params(labelsize=SMALL)


def summary(matrix: Int64[Tensor, "k k"]) -> str:
    right, images = int(matrix.diagonal().sum()), int(matrix.sum())
    return f"{right} of {images} images right ({percent(right / images)})" if images else "no images"


def write_numbers(axes: Axes, shown: Float64[Tensor, "k k"]) -> None:
    """Percentages; a cell without images stays empty."""
    for row, shares in enumerate(shown.tolist()):
        for column, share in enumerate(shares):
            if share > 0:
                number, colour = percent(share).removesuffix(" %"), "white" if SCALE(share) > 0.6 else "black"
                axes.text(column, row, number, ha="center", va="center", fontsize=SMALL, color=colour)


def row_shares(matrix: Int64[Tensor, "k k"]) -> Float64[Tensor, "k k"]:
    """Of the images of each class; nan in the row of a class that has none."""
    return matrix.double() / matrix.sum(1, keepdim=True)


def remarks(matrix: Int64[Tensor, "k k"], classes: Sequence[str]) -> list[str]:
    """The pairs that are confused most, which nobody would find in a large matrix, and how many classes are missing."""
    lines = [
        f"{short_name(classes, is_)} taken for {short_name(classes, guess)}: {percent(n / images)} ({n} of {images})"
        for is_, guess, n, images in worst_pairs(matrix)
    ]
    empty = int((matrix.sum(1) == 0).sum())
    grey = [f"grey: {empty} {'class' if empty == 1 else 'classes'} without images"] if empty else []
    return [*(["confused most:", *lines] if lines else ["No image was taken for another class."]), *grey]


def worst_pairs(matrix: Int64[Tensor, "k k"]) -> list[tuple[int, int, int, int]]:
    """Class, guess, how often, of how many: by share, and by number where shares are equal."""
    images = matrix.sum(1).tolist()
    wrong = matrix - matrix.diagonal().diag()
    pairs = [(is_, guess, int(matrix[is_, guess]), images[is_]) for is_, guess in wrong.nonzero().tolist()]
    return sorted(pairs, key=lambda pair: (-pair[2] / pair[3], -pair[2]))[:PAIRS]


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


def short_name(classes: Sequence[str], number: int) -> str:
    return shorten(classes[number], NAME_WIDTH, SMALL)


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
