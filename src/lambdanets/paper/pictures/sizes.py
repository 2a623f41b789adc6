"""Parameters and FLOPs of all counted networks."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from lambdanets.paper.pictures.drawing import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    Picture,
    Point,
    label,
    logarithmic,
    new_figure,
    svg,
)
from lambdanets.paper.sizes import Counted

CROWD = (14.3, 16.3)  # millions of parameters; most variants of LambdaResNet-50 are in this range
OTHER = (3, 4, 8)  # tables whose rows need their number to be understood
# Colour, marker and legend, by the last table that a network is in.
GROUPS: dict[tuple[int, ...], tuple[str, str, str]] = {
    (5, 6, 13): (BLACK, "s", "Tables 5, 6, 13: deeper networks"),
    (12,): (BLUE, "o", "Table 12: placement"),
    (11,): (ORANGE, "^", "Table 11: k, h, u"),
    (9,): (GREEN, "D", "Table 9: scope"),
    OTHER: (PURPLE, "v", "Tables 3, 4, 8: layers and terms"),
}
CAPTION = (
    "Parameters and FLOPs of every network in the tables that this library has, both counted by it, at the image size "
    "of the row. A label is the row of the last table that has the network; other tables with it follow in brackets."
)


def sizes(counted: Sequence[Counted]) -> Picture | None:
    """Draw all networks on the left, and those with about 15 million parameters enlarged on the right."""
    if not counted:
        return None
    crowd = [network for network in counted if CROWD[0] < network.parameters < CROWD[1]]
    figure, (every, *nearer) = new_figure(14.5, 7.5, 1 + bool(crowd))
    scatter(every, counted)
    every.set_title("all networks of the tables", fontsize=10)
    every.set_xlim(13.5, 110)
    every.legend(fontsize=8, loc="upper left")
    logarithmic(every.xaxis, (15, 20, 25, 35, 45, 60, 85))
    for near in nearer:
        every.axvspan(*CROWD, color="#f2f2f2", zorder=0)
        scatter(near, crowd)
        near.set_title("networks of about 15 M parameters, grey on the left", fontsize=10)
        near.set_xlim(CROWD)
        near.set_ylim(4.6, 40)
        label(near, [point(network) for network in crowd])
    label(every, [point(network) for network in counted if network not in crowd])
    return Picture("Sizes of the networks", CAPTION, svg(figure))


def scatter(axes: Axes, networks: Sequence[Counted]) -> None:
    for tables, (colour, marker, legend) in GROUPS.items():
        these = [network for network in networks if network.rows[-1][0] in tables]
        if these:
            x, y = zip(*((network.parameters, network.flops) for network in these), strict=True)
            axes.scatter(x, y, 26, color=colour, marker=marker, label=legend)
    logarithmic(axes.yaxis, (5, 7, 10, 15, 20, 30, 45, 60))
    axes.set_xlabel("parameters, M (counted)")
    axes.set_ylabel("FLOPs, G (counted)")


def point(network: Counted) -> Point:
    *others, (table, row) = network.rows
    also = ", ".join(dict.fromkeys(str(other) for other, _ in others))
    text = f"Table {table}: {row}" if table in OTHER else row.removesuffix(" u=1")
    return Point(network.parameters, network.flops, f"{text} ({also})" if also else text)
