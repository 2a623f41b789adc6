"""What all pictures share: colours that everybody can tell apart, labels that do not overlap, SVG."""

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
# Where a label may stand relative to its point, in points: close to it first, then farther away.
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
    """A figure without a window, and its panels side by side."""
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
    """Ratios as distances, with plain numbers at these ticks."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_ticks(ticks)
    axis.set_major_formatter(ScalarFormatter())
    axis.set_ticks([], minor=True)


def label(axes: Axes, points: Sequence[Point]) -> None:
    """A label beside each point, where it covers no point, legend or other label; call it when the panels are done."""
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
    note.get_window_extent()  # takes it to its place; what it returns has the line in it
    return Text.get_window_extent(note)


def free_place(axes: Axes, point: Point, taken: Sequence[BboxBase]) -> Annotation:
    """The nearest place inside the panel where the label is alone; a thin line leads to it from the point."""
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
    """A label at some distance from its point; right beside it by default."""
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
    note.set_in_layout(False)  # labels find room in the panels, panels make none for labels
    return note


def contains(outer: BboxBase, inner: BboxBase) -> bool:
    return all(outer.contains(x, y) for x, y in (inner.min, inner.max))


def svg(figure: Figure) -> bytes:
    """The same bytes for the same picture."""
    drawn = BytesIO()
    with mpl.rc_context({"svg.hashsalt": "lambdanets"}):
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    return drawn.getvalue()
