"""The picture of a comparison: accuracy and speed."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from lambdanets.files import write_atomically


def draw_comparison(rows: Sequence[Mapping[str, Any]], title: str, path: Path) -> None:
    """Draw accuracies with their spread, best first, beside the speed of training. Diverged entries are omitted."""
    ordered = sorted((row for row in rows if row["accuracy"] is not None), key=lambda row: row["accuracy"])
    places = range(len(ordered))
    figure = Figure(figsize=(11, 1.6 + 0.32 * len(ordered)), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    left.errorbar(
        [100 * row["accuracy"] for row in ordered],
        places,
        xerr=[100 * (row["spread"] or 0.0) for row in ordered],
        fmt="o",
        color="#4477aa",
        capsize=3,
    )
    left.set(xlabel="test accuracy, %, with the standard deviation over seeds", yticks=list(places))
    left.set_yticklabels([row["entry"] for row in ordered])
    speeds = [row["training_images_per_second"] for row in ordered]
    bars = right.barh(
        list(places), speeds, color=["#cc6677" if "lambda" in row["entry"] else "#bbbbbb" for row in ordered]
    )
    right.bar_label(bars, fmt="%.0f", fontsize=8, padding=2)
    right.set(xlabel="training, images per second")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="x", alpha=0.3)
    figure.suptitle(fill(title, 130), fontsize=9)
    png = BytesIO()
    figure.savefig(png, format="png", dpi=130)
    write_atomically(path, png.getvalue())
