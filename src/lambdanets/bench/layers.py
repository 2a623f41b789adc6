"""Compares lambda layers, a 3x3 convolution and attention at the four resolutions of a ResNet-50."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from lambdanets.bench.formats import Format
from lambdanets.bench.gate import check, check_training
from lambdanets.bench.job import Job, Row, Track
from lambdanets.bench.memory import Subject, peak_in_fresh_process
from lambdanets.bench.passes import PASSES, Pass
from lambdanets.bench.peers import CONTESTANTS, CONVOLUTION, OURS, Shape, build, field
from lambdanets.nn import LambdaLayer2d
from lambdanets.timing import best_times

RESOLUTIONS = ((56, 64), (28, 128), (14, 256), (7, 512))
QUICK_RESOLUTIONS = ((14, 32), (7, 64))


@dataclass(frozen=True)
class Settings:
    rounds: int = 15
    format: Format = "contiguous"
    memory: Literal["none", "largest", "all"] = "all"
    quick: bool = False


def shapes(settings: Settings) -> list[Shape]:
    resolutions = QUICK_RESOLUTIONS if settings.quick else RESOLUTIONS
    b, layout = 2 if settings.quick else 8, settings.format
    plain = [Shape(side, d, b, format=layout) for side, d in resolutions]
    deep = [Shape(side, d, b, u=4, scope=7, format=layout) for side, d in resolutions[:2]]
    return plain + (deep[:1] if settings.quick else deep)


def jobs(settings: Settings) -> list[Job]:
    every = shapes(settings)
    largest = max(shape.side for shape in every)
    found = []
    for shape in every:
        for pass_ in PASSES:
            wanted = settings.memory == "all" or (settings.memory == "largest" and shape.side == largest)
            found.append(job(shape, pass_, settings.rounds, with_memory=wanted and pass_ == "training"))
    return found


def job(shape: Shape, pass_: Pass, rounds: int, *, with_memory: bool) -> Job:
    names = field(shape)

    def run(track: Track) -> Row:
        modules, x = {name: build(name, shape) for name in names}, shape.input()
        ours = modules[OURS]
        assert isinstance(ours, LambdaLayer2d)
        error = max(check(ours, x), check_training(ours, x))
        runs = {name: PASSES[pass_](module, x) for name, module in modules.items()}
        best = best_times(runs, track(range(rounds)))
        peaks = {name: peak(name, shape) for name in track(names)} if with_memory else None
        return row(shape, pass_, error, best, peaks)

    label = f"{shape.side} x {shape.side}, {shape.d} channels, {pass_}"
    return Job(label, rounds + len(names) * with_memory, run)


def contestant(name: str, **shape: Any) -> Subject:
    full = Shape(**shape)
    return Subject(build(name, full), full.input(), replace(full, b=2, side=3).input())


def peak(name: str, shape: Shape) -> int | None:
    return peak_in_fresh_process(contestant, name=name, **asdict(shape))


def row(
    shape: Shape, pass_: Pass, error: float, seconds: Mapping[str, float], peaks: Mapping[str, int | None] | None
) -> Row:
    best_peer = min(peers(seconds), key=lambda name: seconds[name], default=None)
    return {
        **asdict(shape),
        "pass": pass_,
        "error": error,
        "ms": {name: 1e3 * t for name, t in seconds.items()},
        "best_peer": best_peer,
        "best_peer_over_ours": None if best_peer is None else seconds[best_peer] / seconds[OURS],
        "ours_over_conv": seconds[OURS] / seconds[CONVOLUTION] if CONVOLUTION in seconds else None,
        "peak_bytes": None if peaks is None else dict(peaks),
    }


def peers(names: Iterable[str]) -> list[str]:
    """The lambda layers of others."""
    return [name for name in names if CONTESTANTS[name].is_lambda]
