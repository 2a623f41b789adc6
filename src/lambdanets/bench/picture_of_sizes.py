"""Time and memory against the size of the map, a line for each layer."""

from matplotlib.figure import Figure

from lambdanets.bench.report import Report

QUANTITIES = {
    "ms": ("time of a training step, ms", 1.0),
    "peak_bytes": ("peak memory beyond layer and input, MB", 1e-6),
}


def draw_sizes(report: Report, figure: Figure) -> None:
    rows = report.rows
    labels = list(dict.fromkeys(label for row in rows for label in row["ms"]))
    for axes, (quantity, (title, unit)) in zip(figure.subplots(1, 2), QUANTITIES.items(), strict=True):
        for label in labels:
            points = [(row["side"], unit * row[quantity][label]) for row in rows if row[quantity].get(label)]
            if not points:
                continue
            width = 2.5 if label.startswith("lambda") else 1.2
            axes.loglog(*zip(*points, strict=True), "o-", markersize=3, linewidth=width, label=label)
        sides = [row["side"] for row in rows]
        axes.set_xticks(sides, list(map(str, sides)))
        axes.minorticks_off()
        axes.set(title=title, xlabel=f"side of the map, d {rows[0]['d']}, b 1")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].legend(frameon=False, fontsize=8)
