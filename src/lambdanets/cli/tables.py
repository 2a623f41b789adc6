"""The rows of each benchmark as a table."""

from collections.abc import Callable, Mapping
from statistics import median

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from lambdanets.bench.job import Row
from lambdanets.bench.peers import CONTESTANTS
from lambdanets.bench.plans import BAD, bad_choices
from lambdanets.bench.report import Report

MISSING = "-"


def show(benchmark: str, report: Report, console: Console) -> None:
    """Print the tables of a report and its machine."""
    for part in SHOWN[benchmark](report.rows):
        console.print(part)
    machine = report.machine
    kernels = machine["kernels"] or "none"
    versions = ", ".join(f"{package} {version}" for package, version in machine["versions"].items() if version)
    taken = "means over interleaved steps" if benchmark == "training" else "best of interleaved rounds"
    console.print(
        f"{report.command}: {taken}, float32; {machine['cpu']}, {machine['threads']} threads, "
        f"kernels {kernels}, matrix products {machine['gemm_gflops']:.0f} GFLOP/s; {versions}",
    )


def table(title: str, *columns: str) -> Table:
    made = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right", no_wrap=True)
    return made


def number(value: float | None, digits: int = 2) -> str:
    return MISSING if value is None else f"{value:.{digits}f}"


def layers(rows: list[Row]) -> list[Table | str]:
    names = [name for name in CONTESTANTS if any(name in row["ms"] for row in rows)]
    times = table("ms per call", "map, width", "u, scope", "pass", *names, "peer / ours", "ours / conv")
    peaks = table("peak memory of a training step beyond module and input, MB", "map, width", "u, scope", *names)
    for row in rows:
        shape = (f"{row['side']} x {row['side']}, {row['d']}", f"{row['u']}, {row['scope']}")
        ratios = (number(row["best_peer_over_ours"]), number(row["ours_over_conv"]))
        times.add_row(*shape, row["pass"], *(number(row["ms"].get(name)) for name in names), *ratios)
        if row["peak_bytes"] is not None:
            peaks.add_row(*shape, *(megabytes(row["peak_bytes"], name) for name in names))
    worst = max(row["error"] for row in rows)
    return [
        times,
        *[peaks] * bool(peaks.row_count),
        f"our outputs and gradients are within {worst:.0e} of the reference",
    ]


def megabytes(peaks: Mapping[str, int | None], name: str) -> str:
    peak = peaks.get(name)
    return MISSING if peak is None else f"{peak / 1e6:.0f}"


def limit(rows: list[Row]) -> list[Table | str]:
    shown = table(
        "position term of the native plan: ms, and % of the limit for direct sums, which FFTs can exceed",
        *("map", "scope", "k", "h", "v", "b", "forward", "%", "backward", "%", "GFLOP/s"),
    )
    for row in rows:
        sizes = (f"{row['side']} x {row['side']}", *(str(row[name]) for name in ("scope", "k", "h", "v", "b")))
        passes = [number(row[f"{p}_{what}"], d) for p in ("forward", "backward") for what, d in UNITS.items()]
        shown.add_row(*sizes, *passes, number(row["gemm_gflops"], 0))
    middles = [median(row[f"{p}_percent"] for row in rows) for p in ("forward", "backward")]
    return [shown, "median {:.0f} % forward, {:.0f} % backward".format(*middles)]


UNITS = {"ms": 2, "percent": 0}


def plans(rows: list[Row]) -> list[Table | str]:
    shown = table("ms of the chosen plan and of the best plan", "case", "pass", "chosen", "ms", "best", "ms", "ratio")
    for row in rows:
        chosen, best = ((row[which], number(row["ms"][row[which]])) for which in ("chosen", "best"))
        shown.add_row(row["case"], row["pass"], *chosen, *best, number(row["ratio"]))
    return [
        shown,
        f"{bad_choices(rows)} of {len(rows)} chosen plans take more than {BAD} times as long as the best plan",
    ]


def models(rows: list[Row]) -> list[Table | str]:
    names = list(rows[0]["best_ms"])
    shown = table("ms per batch, each network in its better memory format", "images", "pass", *names)
    speeds = table("images per second, and speed relative to resnet50", "images", "pass", *names)
    peaks = table("peak memory of a training step beyond network and images, MB", "images", *names)
    for row in rows:
        images = f"{row['b']} of {row['side']} x {row['side']}"
        shown.add_row(images, row["pass"], *(number(row["best_ms"][name], 1) for name in names))
        ratios = (f"{row['images_per_second'][n]:.1f}, {row['speed_of_resnet50'][n]:.2f}x" for n in names)
        speeds.add_row(images, row["pass"], *ratios)
        if row["peak_bytes"] is not None:
            peaks.add_row(images, *(megabytes(row["peak_bytes"], name) for name in names))
    return [shown, speeds, *[peaks] * bool(peaks.row_count)]


def scaling(rows: list[Row]) -> list[Table | str]:
    shown = table("a training step, d 64, b 1", "case", "ms", "ms", "growth", "peak MB", "peak MB")
    for row in rows:
        peaks = (MISSING if peak is None else f"{peak / 1e6:.0f}" for peak in row["peak_bytes"])
        shown.add_row(row["case"], *(number(t, 1) for t in row["ms"]), number(row["growth"]), *peaks)
    return [shown]


def sizes(rows: list[Row]) -> list[Table | str]:
    labels = list(dict.fromkeys(label for row in rows for label in row["ms"]))
    times = table(f"ms of a training step, d {rows[0]['d']}, b 1", "map", *labels)
    peaks = table("peak memory beyond layer and input, MB", "map", *labels)
    for row in rows:
        side = f"{row['side']} x {row['side']}"
        times.add_row(side, *(number(row["ms"].get(label), 1) for label in labels))
        peaks.add_row(side, *(megabytes(row["peak_bytes"], label) for label in labels))
    return [times, peaks]


def training(rows: list[Row]) -> list[Table | str]:
    shown = table("images per second", "recipe", "batch", "bare loop", "lambdanets train", "ratio")
    for row in rows:
        speeds = (number(row["images_per_second"][who], 0) for who in ("bare", "train"))
        shown.add_row(row["case"], str(row["batch_size"]), *speeds, f"{row['ratio']:.1%}")
    return [shown]


SHOWN: dict[str, Callable[[list[Row]], list[Table | str]]] = {
    "layers": layers,
    "limit": limit,
    "plans": plans,
    "models": models,
    "scaling": scaling,
    "sizes": sizes,
    "training": training,
}
