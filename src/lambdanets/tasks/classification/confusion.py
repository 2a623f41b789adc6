"""The confusion matrix as a picture, with the most confused pairs."""

import math
from collections.abc import Sequence
from pathlib import Path

from jaxtyping import Float64, Int64
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from torch import Tensor

from lambdanets.train.figures import (
    INCH,
    MARGIN,
    PALE,
    SMALL,
    missing_glyphs_allowed,
    new_figure,
    percent,
    place,
    save,
    shorten,
    width,
)

NUMBERED = 20  # the most classes for which numbers fit into the cells
TICKS = 50  # the most names that fit beside a large matrix
PAIRS = 15
COLOURS = colormaps["Blues"].with_extremes(bad=PALE)
SCALE = PowerNorm(0.4, 0, 1)  # makes rare confusions visible
NAME_WIDTH = 105.0  # points


def draw_confusion(matrix: Int64[Tensor, "k k"], classes: Sequence[str], path: Path) -> None:
    """Draw the number of images of each true class (row) by predicted class (column)."""
    with missing_glyphs_allowed():
        save(confusion(matrix, classes), path)


def confusion(matrix: Int64[Tensor, "k k"], classes: Sequence[str]) -> Figure:
    """The matrix, with a list of the most confused pairs."""
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
    axes.set_xlabel("predicted", fontsize=SMALL)
    axes.set_ylabel("true", fontsize=SMALL)
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
    """The most confused pairs, which are hard to find in a large matrix, and the number of classes without images."""
    lines = [
        f"{short_name(classes, is_)} predicted as {short_name(classes, guess)}: {percent(n / images)} ({n} of {images})"
        for is_, guess, n, images in worst_pairs(matrix)
    ]
    empty = int((matrix.sum(1) == 0).sum())
    grey = [f"grey: {empty} {'class' if empty == 1 else 'classes'} without images"] if empty else []
    return [*(["most confused:", *lines] if lines else ["No image was misclassified."]), *grey]


def worst_pairs(matrix: Int64[Tensor, "k k"]) -> list[tuple[int, int, int, int]]:
    """Class, guess, how often, of how many: by share, and by number where shares are equal."""
    images = matrix.sum(1).tolist()
    wrong = matrix - matrix.diagonal().diag()
    pairs = [(is_, guess, int(matrix[is_, guess]), images[is_]) for is_, guess in wrong.nonzero().tolist()]
    return sorted(pairs, key=lambda pair: (-pair[2] / pair[3], -pair[2]))[:PAIRS]


def short_name(classes: Sequence[str], number: int) -> str:
    return shorten(classes[number], NAME_WIDTH, SMALL)
