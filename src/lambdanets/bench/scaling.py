"""Growth of time and memory of a training step: global layers on maps, causal layers on sequences."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from lambdanets.bench.job import Job, Row, Track
from lambdanets.bench.memory import Subject, peak_in_fresh_process
from lambdanets.bench.passes import training
from lambdanets.nn import LambdaLayer1d, LambdaLayer2d
from lambdanets.timing import best_times


@dataclass(frozen=True)
class Settings:
    rounds: int = 3
    quick: bool = False


def global_map(size: int) -> Subject:
    layer = LambdaLayer2d(64, scope=None, size=size)
    return Subject(layer, torch.randn(1, 64, size, size), torch.randn(2, 64, 3, 3))


def causal_sequence(size: int) -> Subject:
    layer = LambdaLayer1d(64, scope=1023, causal=True)
    return Subject(layer, torch.randn(1, 64, size), torch.randn(2, 64, 9))


@dataclass(frozen=True)
class Growth:
    label: str
    make: Callable[[int], Subject]
    sizes: tuple[int, int]


FULL = (
    Growth("global, {0} x {0} to {1} x {1}", global_map, (64, 128)),
    Growth("causal, scope 1023, {0} to {1} positions", causal_sequence, (4096, 16384)),
)
QUICK = (
    Growth("global, {0} x {0} to {1} x {1}", global_map, (8, 16)),
    Growth("causal, scope 1023, {0} to {1} positions", causal_sequence, (64, 256)),
)


def jobs(settings: Settings) -> list[Job]:
    return [job(growth, settings.rounds) for growth in (QUICK if settings.quick else FULL)]


def job(growth: Growth, rounds: int) -> Job:
    label = growth.label.format(*growth.sizes)

    def run(track: Track) -> Row:
        subjects = {size: growth.make(size) for size in growth.sizes}
        steps = {str(size): training(subject.module, subject.x) for size, subject in subjects.items()}
        best = best_times(steps, track(range(rounds)))
        peaks = [peak_in_fresh_process(growth.make, size=size) for size in track(growth.sizes)]
        small, large = (best[str(size)] for size in growth.sizes)
        return {
            "case": label,
            "sizes": list(growth.sizes),
            "ms": [1e3 * small, 1e3 * large],
            "growth": large / small,
            "peak_bytes": peaks,
        }

    return Job(label, rounds + 2, run)
