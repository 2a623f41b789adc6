"""Accuracy by speed, as in the paper's Figure 2, from Tables 12 and 13."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from lambdanets.paper.entries import PublishedEntry, published
from lambdanets.paper.measure import Measurement
from lambdanets.paper.pictures.drawing import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    TOP1,
    TPU,
    Picture,
    Point,
    label,
    new_figure,
    svg,
)

# Endings of rows in Table 13: colour, marker and legend.
FAMILIES = {
    "": (GREY, "s", "ResNet"),
    "SE": (BLUE, "o", "ResNet + squeeze-and-excitation"),
    "lambda": (ORANGE, "^", "ResNet + a few lambda layers"),
    "all lambdas": (GREEN, "D", "lambda layers in all of c4 and c5"),
}


def speeds(entries: Sequence[PublishedEntry], measurement: Measurement | None) -> Picture | None:
    """Draw one panel for each table, because they were trained differently."""
    found = {}
    for table in (12, 13):
        top1 = published(entries, table, "top1")
        speed = measurement.speeds(table) if measurement else published(entries, table, "throughput_ex_s")
        both = {row: (speed[row], top1[row]) for row in top1 if row in speed}
        if both:
            found[table] = both
    if not found:
        return None
    figure, panels = new_figure(6.5 * len(found), 4.8, len(found))
    for axes, (table, rows) in zip(panels, found.items(), strict=True):
        axes.set_title(f"Table {table}", fontsize=10)
        axes.set_xlabel(measurement.unit if measurement else TPU)
        axes.set_ylabel(TOP1)
        axes.margins(0.12, 0.12)
        draw = alone if table == 12 else deeper
        label(axes, draw(axes, rows))
    whose = f"speeds are {measurement.unit}" if measurement else "so are the speeds, on 8 TPUv3 cores"
    caption = f"Speed against accuracy, as in the paper's Figure 2. Accuracies are the paper's; {whose}."
    return Picture("Speed and accuracy", caption, svg(figure))


def alone(axes: Axes, rows: Mapping[str, tuple[float, float]]) -> list[Point]:
    """Draw single networks."""
    axes.plot(*zip(*rows.values(), strict=True), "o", color=BLUE)
    return [Point(*figures, row) for row, figures in rows.items()]


def deeper(axes: Axes, rows: Mapping[str, tuple[float, float]]) -> list[Point]:
    """Draw a line from 101 to 152 layers for each kind of network."""
    points = []
    for name, (colour, marker, legend) in FAMILIES.items():
        these = {row.split()[0]: figures for row, figures in rows.items() if family(row) == name}
        if these:
            axes.plot(*zip(*these.values(), strict=True), marker=marker, color=colour, label=legend)
            points += [Point(*figures, depth.removeprefix("ResNet-")) for depth, figures in these.items()]
    axes.legend(fontsize=8)
    return points


def family(row: str) -> str:
    """
    >>> family("ResNet-101 224"), family("ResNet-101 224 + SE"), family("ResNet-152 256 + 6 lambdas")
    ('', 'SE', 'lambda')
    """
    ending = row.partition(" + ")[2]
    return "lambda" if ending[:1].isdigit() else ending
