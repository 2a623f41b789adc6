"""`python -m lambdanets.bench` (make bench): the layer's time beside a convolution's and attention's, as ratios."""

import platform

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lambdanets.bench.layers import BATCH, RESOLUTIONS, Shape, check, forward, training_step
from lambdanets.bench.timing import best_times

ROUNDS = 7
STEPS = {"forward": forward, "forward + backward": training_step}


def main() -> None:
    console = Console()
    table = Table(title="ms per call; in brackets, times the lambda layer's", title_justify="left")
    for column in ("map, width", "pass", "lambda", "conv3x3", "attention", "error"):
        table.add_column(column, justify="right")
    for side, d in RESOLUTIONS:
        shape = Shape(side, d)
        error = check(shape)
        for name, step in STEPS.items():
            x = shape.input()
            runs = {who: step(module, x) for who, module in shape.contestants().items()}
            label = f"{side}x{side}, {d}, {name}"
            best = best_times(runs, track(range(ROUNDS), label, console=console, transient=True))
            times = [f"{1e3 * t:.1f} ({t / best['lambda']:.2f}x)" for t in best.values()]
            table.add_row(f"{side}x{side}, {d}", name, *times, f"{error:.0e}")
    console.print(table)
    console.print(
        f"b = {BATCH}, k = 16, h = 4, scope 23, float32, {torch.get_num_threads()} threads, "
        f"torch {torch.__version__}, {platform.processor() or platform.machine()}; best of {ROUNDS}, taking turns; "
        "error is that of the lambda layer against the oracle at 7 positions of the map",
    )


if __name__ == "__main__":
    main()
