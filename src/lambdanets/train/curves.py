"""Curves of a run, a panel for each quantity."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from lambdanets.train.figures import SMALL, message, new_figure, save
from lambdanets.train.panels import LEARNING_RATE, LOSS, Line, Panel

# Rows of `metrics.csv`. Epochs are whole numbers.
Rows = Sequence[Mapping[str, float | int]]

MARKED = 40  # the most points of a curve that get markers
LABEL_GAP = 0.065  # of a panel's height: one line of text


def draw_curves(rows: Rows, panels: Sequence[Panel], path: Path) -> None:
    """Draw the losses, the panels of the task and the learning rate by epoch."""
    save(curves(rows, panels), path)


def curves(rows: Rows, panels: Sequence[Panel]) -> Figure:
    """A figure with a panel for each quantity that the run has recorded."""
    panels = [panel for panel in (LOSS, *panels, LEARNING_RATE) if any(points(rows, line) for line in panel.lines)]
    if not panels:
        return message("No epoch has finished.")
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
    style(axes, panel.title)
    axes.set_xlim(rows[0]["epoch"] - 0.5, rows[-1]["epoch"] + 0.5)
    label_ends(axes, {line: each[-1][1] for line, each in drawn.items()})


def style(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("epoch", fontsize=SMALL)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    axes.tick_params(labelsize=SMALL)
    axes.grid(color="#e0e0e0", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def points(rows: Rows, line: Line) -> list[tuple[float, float]]:
    """The (epoch, value) points of a line, without missing, NaN or Inf values."""
    found = [(float(row["epoch"]), line.factor * row[line.key]) for row in rows if line.key in row]
    return [(x, y) for x, y in found if math.isfinite(y)]


def label_ends(axes: Axes, ends: Mapping[Line, float]) -> None:
    """Write names and last values to the right of the panel, where no curve crosses them."""
    to_panel = axes.transData + axes.transAxes.inverted()
    heights = spread([float(to_panel.transform((1.0, end))[1]) for end in ends.values()], LABEL_GAP)
    for (line, end), height in zip(ends.items(), heights, strict=True):
        text = line.label(end)
        axes.text(1.01, height, text, transform=axes.transAxes, va="center", fontsize=SMALL, color=line.colour)


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Heights in the same order, raised so that they are at least `gap` apart."""
    order = sorted(range(len(heights)), key=lambda n: heights[n])
    apart = list(heights)
    for below, above in pairwise(order):
        apart[above] = max(apart[above], apart[below] + gap)
    return apart
