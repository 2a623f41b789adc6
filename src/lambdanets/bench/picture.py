"""Pictures of reports: the ratios of bench layers as bars, the growth of bench sizes as lines."""

from io import BytesIO
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from lambdanets.bench.job import Row
from lambdanets.bench.picture_of_sizes import draw_sizes
from lambdanets.bench.report import Report
from lambdanets.files import write_atomically

RATIOS = {
    "best_peer_over_ours": "best other lambda layer / ours\n(above 1: ours is faster)",
    "ours_over_conv": "ours / 3x3 convolution\n(below 1: ours is faster)",
}
COLOURS = {"forward": "#4477aa", "training": "#cc6677"}


def draw(report: Report, path: Path) -> None:
    rows = report.rows
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    if rows and all(ratio in row for ratio in RATIOS for row in rows):
        draw_ratios(rows, figure)
    elif rows and " bench sizes" in report.command:
        draw_sizes(report, figure)
    else:
        raise ValueError(f"only reports of bench layers and bench sizes can be drawn, got one of `{report.command}`")
    machine = report.machine
    instructions = machine["kernels"] or "no kernels"
    figure.suptitle(f"{machine['cpu']}, {machine['threads']} threads, {instructions}", fontsize=9)
    png = BytesIO()
    figure.savefig(png, format="png", dpi=150)
    write_atomically(path, png.getvalue())


def draw_ratios(rows: list[Row], figure: Figure) -> None:
    """Draw one panel for each ratio, with two bars for each shape."""
    for axes, (ratio, title) in zip(figure.subplots(1, len(RATIOS)), RATIOS.items(), strict=True):
        compared = [row for row in rows if row[ratio] is not None]
        shapes = list(dict.fromkeys(map(shape_label, compared)))
        for shift, (pass_, colour) in zip((-0.2, 0.2), COLOURS.items(), strict=True):
            these = [row for row in compared if row["pass"] == pass_]
            places = [shapes.index(shape_label(row)) + shift for row in these]
            bars = axes.bar(places, [row[ratio] for row in these], 0.38, color=colour, label=pass_)
            axes.bar_label(bars, fmt="%.2g", fontsize=8)
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_xticks(range(len(shapes)), shapes, fontsize=8)
        axes.set_title(title, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)


def shape_label(row: Row) -> str:
    deep = f"\nu {row['u']}" if row["u"] > 1 else ""
    return f"{row['side']} x {row['side']}\nd {row['d']}\nscope {row['scope']}{deep}"
