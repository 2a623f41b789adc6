"""Time and memory of a training step of each kind of layer on growing maps."""

from dataclasses import dataclass
from typing import Any

import torch

from lambdanets.bench.job import Job, Row, Track
from lambdanets.bench.memory import Subject, peak_in_fresh_process
from lambdanets.bench.passes import training
from lambdanets.nn import create_layer
from lambdanets.timing import best_times

D = 64
LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "lambda, 23 x 23": ("lambda", {"scope": 23}),
    "lambda, global": ("lambda", {"scope": None}),
    "attention, relative": ("attention", {}),
    "attention": ("attention", {"positions": "none"}),
    "axial": ("axial", {}),
    "local, 7 x 7": ("local", {}),
    "linear": ("linear", {}),
}
# The largest side: scores of all pairs, their softmax and the gradients of both are in memory at once.
FORMS_ALL_PAIRS = {"attention, relative": 80}


@dataclass(frozen=True)
class Settings:
    rounds: int = 3
    quick: bool = False

    @property
    def sides(self) -> tuple[int, ...]:
        return (4, 8) if self.quick else (14, 20, 28, 40, 56, 80, 112, 128)


def subject(label: str, side: int) -> Subject:
    name, options = LAYERS[label]
    layer = create_layer(name, D, size=side, **options)
    return Subject(layer, torch.randn(1, D, side, side), torch.randn(2, D, 3, 3))


def jobs(settings: Settings) -> list[Job]:
    return [job(side, settings) for side in settings.sides]


def job(side: int, settings: Settings) -> Job:
    """Time all layers on maps of one side, and measure their peak memory unless `quick`."""
    rounds = settings.rounds
    labels = [label for label in LAYERS if side <= FORMS_ALL_PAIRS.get(label, side)]

    def run(track: Track) -> Row:
        subjects = {label: subject(label, side) for label in labels}
        best = best_times({label: training(s.module, s.x) for label, s in subjects.items()}, track(range(rounds)))
        weighed = [] if settings.quick else labels
        peaks = {label: peak_in_fresh_process(subject, label=label, side=side) for label in track(weighed)}
        return {
            "side": side,
            "d": D,
            "ms": {label: 1e3 * seconds for label, seconds in best.items()},
            "peak_bytes": peaks,
        }

    return Job(f"{side} x {side}", rounds + (0 if settings.quick else len(labels)), run)
