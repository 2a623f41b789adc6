#!/usr/bin/env python3
"""Whether one checkout of lambdanets is slower than another: `python tools/compare_checkouts.py OLD NEW`.

Processes of the two checkouts take turns, in alternating order. `--rows` says what each of them times, best of several
calls: our layer as in `lambdanets bench layers` and a small network ("layers"), our networks as in `lambdanets bench
models` ("models"), or the steps of complete runs as in `lambdanets bench training` ("training"). The ratio new / old is
taken within each round, so that whatever slows the machine down for a while slows down both. The table shows the median
of these ratios and its confidence interval from order statistics, which assumes nothing about their distribution. A row
is slower if its whole interval is above 1.03, faster if it is below 0.97; exit code 1 means that some row is slower.
Fewer than 6 rounds have no interval of 95 %, and no verdict.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import comb
from pathlib import Path
from typing import Any

from instruction_sets import LIMITS

Times = dict[str, float]  # best milliseconds by row

SLOWER, FASTER = 1.03, 0.97
CONFIDENCE = 0.95
# Calls in a turn: the first finds the caches as another row left them.
TURN = 3
SHAPES: list[dict[str, int]] = [
    *({"side": side, "d": d, "u": 1, "scope": 23} for side, d in ((56, 64), (28, 128), (14, 256), (7, 512))),
    *({"side": side, "d": d, "u": 4, "scope": 7} for side, d in ((56, 64), (28, 128))),
]
SMALL_MODEL = {"name": "lambda_resnet26", "images": 4, "image_size": 96}
MODELS: list[dict[str, Any]] = [
    {"name": "lambda_resnet50", "images": 8, "image_size": 224, "options": options}
    for options in ({}, {"placement": "CCLL"})
]
ROWS: dict[str, dict[str, Any]] = {
    "layers": {"turns": 3, "b": 8, "layers": SHAPES, "models": [SMALL_MODEL]},
    "models": {"turns": 2, "models": MODELS},
    "training": {"turns": 1, "steps": 20},
}
# To try it out: the times say nothing.
TINY_LAYER = {"side": 7, "d": 16, "u": 1, "scope": 5}
TINY_MODEL = {"name": "lambda_resnet14_small", "images": 2, "image_size": 16}
QUICK: dict[str, dict[str, Any]] = {
    "layers": {"turns": 1, "b": 2, "layers": [TINY_LAYER], "models": [TINY_MODEL]},
    "models": {"turns": 1, "models": [TINY_MODEL]},
    "training": {"turns": 1, "steps": 2, "quick": True},
}


class CannotCompareError(RuntimeError):
    """A checkout cannot be built or does not run."""


# In the process that measures. Checkouts of any age must do this, so it uses what has always been public.


def measure(rows: Mapping[str, Any]) -> dict[str, Any]:
    """The best milliseconds of each row, and what they were measured with."""
    import torch

    import lambdanets
    from lambdanets.kernels import instruction_set, unavailable

    if rows["threads"] is not None:
        torch.set_num_threads(rows["threads"])
    return {
        "package": str(Path(lambdanets.__file__).resolve().parent),
        "kernels": instruction_set() if unavailable() is None else f"none: {unavailable()}",
        "threads": torch.get_num_threads(),
        "ms": {**best_times({**layer_runs(rows), **model_runs(rows)}, rows["turns"]), **training_times(rows)},
    }


def layer_runs(rows: Mapping[str, Any]) -> dict[str, Callable[[], object]]:
    import torch

    from lambdanets import LambdaLayer2d

    runs: dict[str, Callable[[], object]] = {}
    for shape in rows.get("layers", ()):
        side, d, u = shape["side"], shape["d"], shape["u"]
        name = f"layer {side} x {side}, d = {d}, scope {shape['scope']}" + (f", u = {u}" if u > 1 else "")
        torch.manual_seed(0)
        x = torch.randn(rows["b"], d, side, side)
        leaf = x.clone().requires_grad_()
        layers = [LambdaLayer2d(d, k=16, h=4, u=u, scope=shape["scope"]).train(mode) for mode in (False, True)]

        def forward(layer: Any = layers[0], x: Any = x) -> None:
            with torch.no_grad():
                layer(x)

        def training(layer: Any = layers[1], x: Any = leaf) -> None:
            y = layer(x)
            torch.autograd.grad(y, [x, *layer.parameters()], torch.ones_like(y))

        runs |= {f"{name}, forward": forward, f"{name}, training": training}
    return runs


def model_runs(rows: Mapping[str, Any]) -> dict[str, Callable[[], object]]:
    runs: dict[str, Callable[[], object]] = {}
    for model in rows.get("models", ()):
        runs |= runs_of_model(**model)
    return runs


def runs_of_model(
    name: str, images: int, image_size: int, options: Mapping[str, Any] | None = None
) -> dict[str, Callable[[], object]]:
    import torch

    from lambdanets import create_model

    torch.manual_seed(0)
    x = torch.randn(images, 3, image_size, image_size).contiguous(memory_format=torch.channels_last)
    labels = torch.arange(images)
    still, learning = (
        create_model(name, image_size=image_size, num_classes=10, **(options or {})).train(mode)
        for mode in (False, True)
    )
    for model in (still, learning):
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs do not have it
    # Steps so small that the weights stay what they are.
    optimiser = torch.optim.SGD(learning.parameters(), lr=1e-9, momentum=0.9)

    def inference() -> None:
        with torch.no_grad():
            still(x)

    def step() -> None:
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(learning(x), labels).backward()
        optimiser.step()

    label = ", ".join([name, *(options or {}).values(), f"{images} images of {image_size} x {image_size}"])
    return {f"{label}, inference": inference, f"{label}, training step": step}


def training_times(rows: Mapping[str, Any]) -> Times:
    """Mean milliseconds of a step of each recipe, in a run with averages, guard and metrics."""
    if "steps" not in rows:
        return {}
    from lambdanets.bench import training
    from lambdanets.bench.job import untracked

    settings = training.Settings(rounds=rows["turns"], steps=rows["steps"], quick=rows.get("quick", False))
    with contextlib.redirect_stdout(sys.stderr):  # standard output is for the result
        found = [job.run(untracked) for job in training.jobs(settings)]
    return {
        f"{row['case']}, step of a run": 1e3 * row["batch_size"] / row["images_per_second"]["train"] for row in found
    }


def best_times(runs: Mapping[str, Callable[[], object]], turns: int) -> Times:
    """In milliseconds, after one call each that does not count."""
    best = dict.fromkeys(runs, float("inf"))
    for run in runs.values():
        run()
    for _ in range(turns):
        for name, run in runs.items():
            for _ in range(TURN):
                start = time.perf_counter()
                run()
                best[name] = min(best[name], 1e3 * (time.perf_counter() - start))
    return best


# In the process that compares, which must not import either package.


@dataclass(frozen=True)
class Comparison:
    """One row: the medians of both checkouts' times, and of the ratio new / old within each round."""

    row: str
    old_ms: float
    new_ms: float
    ratio: float
    low: float
    high: float
    verdict: str  # slower, faster, or nothing


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The narrowest interval between order statistics that holds the median with 95 % confidence, and its coverage.

    The median is between the jth smallest and the jth largest of n values with probability 1 - 2 P(B < j), where B is
    the number of heads of n coins. Fewer than 6 values have no such interval: theirs is the smallest to the largest.
    """
    ordered, n = sorted(values), len(values)

    def coverage(j: int) -> float:
        return 1 - sum(comb(n, i) for i in range(j)) / 2.0 ** (n - 1)

    j = max((j for j in range(1, (n + 1) // 2 + 1) if coverage(j) >= CONFIDENCE), default=1)
    return ordered[j - 1], ordered[-j], coverage(j)


def verdict(low: float, high: float, coverage: float) -> str:
    if coverage < CONFIDENCE:
        return ""
    return "slower" if low > SLOWER else "faster" if high < FASTER else ""


def compare(old: Sequence[Times], new: Sequence[Times]) -> list[Comparison]:
    """Rows of all rounds, of both checkouts in the same order."""
    found = []
    for row in old[0]:
        before, after = [times[row] for times in old], [times[row] for times in new]
        ratios = [b / a for a, b in zip(before, after, strict=True)]
        low, high, coverage = interval(ratios)
        old_ms, new_ms, ratio = (statistics.median(values) for values in (before, after, ratios))
        found.append(Comparison(row, old_ms, new_ms, ratio, low, high, verdict(low, high, coverage)))
    return found


def table(comparisons: Sequence[Comparison], rounds: int) -> str:
    width = max(len(comparison.row) for comparison in comparisons)
    coverage = interval(range(rounds))[2]
    lines = [f"{'row':<{width}}  {'old ms':>8}  {'new ms':>8}  new / old  {f'{coverage:.0%} interval':<14}"]
    for c in comparisons:
        between = f"{c.low:.3f} to {c.high:.3f}"
        lines.append(f"{c.row:<{width}}  {c.old_ms:8.2f}  {c.new_ms:8.2f}  {c.ratio:9.3f}  {between:<14}  {c.verdict}")
    return "\n".join(line.rstrip() for line in lines)


def refresh_kernels(checkout: Path, python: str) -> None:
    """Compile the kernels of a checkout that has none, or older ones than their sources."""
    kernels = checkout / "src" / "lambdanets" / "kernels"
    if not (kernels / "build.py").exists():
        raise CannotCompareError(f"{checkout} is no checkout of lambdanets: it has no src/lambdanets/kernels/build.py")
    library = kernels / "liblambdanets.so"
    newest = max(source.stat().st_mtime for source in (kernels / "build.py", *(kernels / "native").iterdir()))
    if library.exists() and library.stat().st_mtime >= newest:
        return
    print(f"compiling the kernels of {checkout}", file=sys.stderr, flush=True)
    if subprocess.run([python, str(kernels / "build.py")], stdout=sys.stderr).returncode:
        raise CannotCompareError(f"the kernels of {checkout} were not built")


def measured(checkout: Path, options: argparse.Namespace) -> dict[str, Any]:
    """What one process of a checkout measures."""
    environment = {**os.environ, **LIMITS.get(options.instructions, {}), "PYTHONPATH": str(checkout / "src")}
    rows = {**(QUICK if options.quick else ROWS)[options.rows], "threads": options.threads}
    command = [options.python, __file__, "--measure", json.dumps(rows)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise CannotCompareError(f"a process of {checkout} ended with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    package = (checkout / "src" / "lambdanets").resolve()
    if found["package"] != str(package):
        raise CannotCompareError(f"a process of {checkout} imported {found['package']} instead of {package}")
    return found


def measure_rounds(options: argparse.Namespace) -> tuple[list[Times], list[Times], str]:
    """The times of both checkouts in every round, and what both were measured with."""
    times: dict[str, list[Times]] = {"old": [], "new": []}
    settings: dict[str, str] = {}
    for number in range(options.rounds):
        for which in ("old", "new") if number % 2 == 0 else ("new", "old"):
            found = measured(getattr(options, which), options)
            times[which].append(found["ms"])
            settings[which] = f"{found['threads']} threads, kernels {found['kernels']}"
        if settings["old"] != settings["new"]:
            raise CannotCompareError(f"they cannot be compared: old {settings['old']}, new {settings['new']}")
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    return times["old"], times["new"], settings["old"]


def positive(text: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"must be a positive integer, got {text!r}")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("old", type=Path, metavar="OLD", help="a clone or worktree")
    parser.add_argument("new", type=Path, metavar="NEW", help="another one, or the same")
    parser.add_argument("--rows", choices=tuple(ROWS), default="layers", help="what is timed (%(default)s)")
    parser.add_argument("--rounds", type=positive, default=9, help="processes of each checkout (%(default)s)")
    parser.add_argument("--python", default=sys.executable, help="the interpreter, that of this process by default")
    parser.add_argument("--instructions", choices=tuple(LIMITS), help="as on a CPU that has no more, for torch too")
    parser.add_argument("--threads", type=positive, help="of torch and the kernels; as many as torch takes by default")
    parser.add_argument("--quick", action="store_true", help="tiny rows, to try it out: the numbers say nothing")
    parser.add_argument("--json", type=Path, metavar="F", help="write the table and the times of all rounds there")
    options = parser.parse_args(arguments)
    try:
        for checkout in (options.old, options.new):
            refresh_kernels(checkout, options.python)
        old, new, settings = measure_rounds(options)
    except CannotCompareError as error:
        print(f"compare_checkouts: {error}", file=sys.stderr)
        return 2
    comparisons = compare(old, new)
    print(f"{options.rounds} rounds, {settings}; medians of the best times of each process")
    print(table(comparisons, options.rounds))
    if options.json is not None:
        content = {"settings": settings, "rows": [asdict(c) for c in comparisons], "old_ms": old, "new_ms": new}
        options.json.write_text(json.dumps(content, indent=1) + "\n")
    return int(any(c.verdict == "slower" for c in comparisons))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(json.loads(sys.argv[2]))))
    else:
        sys.exit(main())
