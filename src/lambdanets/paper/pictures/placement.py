"""Table 12: accuracy, size and speed by the placement of lambda layers."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from lambdanets.paper.entries import PublishedEntry, ours, published
from lambdanets.paper.measure import Measurement
from lambdanets.paper.pictures.drawing import (
    BLUE,
    GREEN,
    ORANGE,
    TOP1,
    TPU,
    Picture,
    Point,
    annotation,
    new_figure,
    svg,
)

CAPTION = (
    "Table 12, ResNet-50 with lambda layers (L) or convolutions (C) in each of its stages c2 to c5. Accuracies and "
    "throughputs on TPUs are the paper's, parameters are counted by this library."
)


def placements(entries: Sequence[PublishedEntry], measurement: Measurement | None) -> Picture | None:
    """Draw a row for each placement and a panel for each quantity."""
    quantities = {
        TOP1: (published(entries, 12, "top1"), ORANGE),
        "parameters, M (counted)": (ours(entries, 12, "params_M"), BLUE),
        TPU: (published(entries, 12, "throughput_ex_s"), ORANGE),
    }
    if measurement is not None:
        quantities[measurement.unit] = (measurement.speeds(12), GREEN)
    having = {name: found for name, found in quantities.items() if found[0]}
    if not having:
        return None
    rows = list(dict.fromkeys(entry.row for entry in entries if entry.table == 12))
    figure, panels = new_figure(3.8 * len(having), 3.6, len(having), sharey=True)
    for axes, (name, (values, colour)) in zip(panels, having.items(), strict=True):
        dots(axes, rows, values, colour)
        axes.set_xlabel(name, fontsize=9)
    panels[0].invert_yaxis()
    return Picture("Placement", CAPTION, svg(figure))


def dots(axes: Axes, rows: Sequence[str], values: Mapping[str, float], colour: str) -> None:
    points = [Point(values[row], rows.index(row), f" {values[row]:.4g}") for row in rows if row in values]
    axes.plot([point.x for point in points], [point.y for point in points], "o", color=colour)
    axes.set_yticks(range(len(rows)), rows, family="monospace")
    axes.margins(x=0.25)
    axes.locator_params(axis="x", nbins=5)
    for point in points:
        annotation(axes, point)
