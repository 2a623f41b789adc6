"""Shared by all pictures: colours for colour-blind readers, labels that do not overlap, SVG."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from matplotlib.ticker import ScalarFormatter
from matplotlib.transforms import Bbox, BboxBase

BLUE, ORANGE, GREEN, PURPLE, GREY, BLACK = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7a7a7a", "#000000"
SMALL = 8
# Positions of labels relative to their points, in points of length, nearest first.
NEAR = 5.0
DISTANCES = tuple(NEAR + 7.0 * step for step in range(15))
DIRECTIONS = ((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0), (1.0, 0.6), (-1.0, 0.6), (1.0, -0.6), (-1.0, -0.6))
TOP1 = "ImageNet top-1, % (the paper's)"
TPU = "examples/s on 8 TPUv3 cores (the paper's)"


class Picture(NamedTuple):
    name: str
    caption: str
    svg: bytes


class Point(NamedTuple):
    x: float
    y: float
    label: str


def new_figure(width: float, height: float, panels: int, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure and its panels, side by side."""
    figure = Figure(figsize=(width, height), dpi=72, layout="constrained")
    FigureCanvasAgg(figure)
    axes: list[Axes] = figure.subplots(1, panels, squeeze=False, **options)[0].tolist()
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
        each.grid(color="#e0e0e0", linewidth=0.6)
        each.set_axisbelow(True)
        each.tick_params(labelsize=SMALL)
    return figure, axes


def logarithmic(axis: Any, ticks: Sequence[int]) -> None:
    """Make an axis logarithmic, with plain numbers at these ticks."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_ticks(ticks)
    axis.set_major_formatter(ScalarFormatter())
    axis.set_ticks([], minor=True)


def label(axes: Axes, points: Sequence[Point]) -> None:
    """Label each point without covering points, the legend or other labels; call it after all else is drawn."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    legend = axes.get_legend()
    taken: list[BboxBase] = [dot(axes, point) for point in points]
    if legend is not None:
        taken.append(legend.get_window_extent())
    for point in points:
        taken.append(text_box(free_place(axes, point, taken)))


def dot(axes: Axes, point: Point) -> Bbox:
    x, y = axes.transData.transform((point.x, point.y))
    return Bbox.from_bounds(x - 3, y - 3, 6, 6)


def text_box(note: Annotation) -> BboxBase:
    note.get_window_extent()  # updates the position; the result includes the line
    return Text.get_window_extent(note)


def free_place(axes: Axes, point: Point, taken: Sequence[BboxBase]) -> Annotation:
    """Place the label at the nearest free position in the panel; a thin line connects it to the point."""
    inside = axes.get_window_extent()
    for distance in DISTANCES:
        for dx, dy in DIRECTIONS:
            note = annotation(axes, point, distance * dx, distance * dy)
            box = text_box(note)
            if contains(inside, box) and not any(box.overlaps(other) for other in taken):
                return note
            note.remove()
    return annotation(axes, point)


def annotation(axes: Axes, point: Point, dx: float = NEAR, dy: float = 0.0) -> Annotation:
    """A label at a distance from its point; next to it by default."""
    lead = {"arrowstyle": "-", "color": GREY, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3}
    note = axes.annotate(
        point.label,
        (point.x, point.y),
        (dx, dy),
        textcoords="offset points",
        fontsize=SMALL,
        horizontalalignment="left" if dx > 0 else "right" if dx < 0 else "center",
        verticalalignment="bottom" if dy > 0 else "top" if dy < 0 else "center",
        arrowprops=lead if max(abs(dx), abs(dy)) > NEAR else None,
    )
    note.set_in_layout(False)  # labels must not change the size of the panels
    return note


def contains(outer: BboxBase, inner: BboxBase) -> bool:
    return all(outer.contains(x, y) for x, y in (inner.min, inner.max))


def svg(figure: Figure) -> bytes:
    """Reproducible SVG: the same picture gives the same bytes."""
    drawn = BytesIO()
    with mpl.rc_context({"svg.hashsalt": "lambdanets"}):
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    return drawn.getvalue()
