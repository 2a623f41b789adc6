"""Compares torchvision's ResNet-50 with lambda ResNets, made of our layers and those of others.

Each network is timed in both memory formats, and its better one counts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from lambdanets.bench.formats import MEMORY_FORMATS, Format, convert
from lambdanets.bench.gate import check_layers
from lambdanets.bench.job import Job, Row, Track
from lambdanets.bench.memory import Subject, peak_in_fresh_process
from lambdanets.bench.networks import BASELINE, OURS, fold_batch_norms, networks, settle
from lambdanets.bench.passes import Run, forward
from lambdanets.timing import best_times

ModelPass = Literal["forward", "folded", "training"]


@dataclass(frozen=True)
class Settings:
    rounds: int = 3
    quick: bool = False

    @property
    def images(self) -> tuple[int, int]:
        """The number of images, and their side."""
        return (2, 32) if self.quick else (8, 224)


def training_step(network: nn.Module, x: Tensor) -> Run:
    """A step of SGD on a cross-entropy loss, with a learning rate so small that the weights hardly change."""
    network.train()
    labels = torch.arange(len(x))
    optimiser = torch.optim.SGD(network.parameters(), lr=1e-9, momentum=0.9)

    def run() -> object:
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(network(x), labels)
        loss.backward()
        return optimiser.step()

    return run


def folded(network: nn.Module, x: Tensor) -> Run:
    return forward(fold_batch_norms(network, x), x)


PASSES: dict[ModelPass, Callable[[nn.Module, Tensor], Run]] = {
    "forward": forward,
    "folded": folded,
    "training": training_step,
}


def jobs(settings: Settings) -> list[Job]:
    return [job(pass_, settings) for pass_ in PASSES]


def job(pass_: ModelPass, settings: Settings) -> Job:
    b, side = settings.images

    def run(track: Track) -> Row:
        torch.manual_seed(0)
        check_layers([networks()[OURS]()])
        runs = {(name, layout): ready(name, layout, pass_, b, side) for name in networks() for layout in MEMORY_FORMATS}
        times = best_times(runs, track(range(settings.rounds)))
        ms = {name: {layout: 1e3 * times[name, layout] for layout in MEMORY_FORMATS} for name in networks()}
        best = {name: min(each.values()) for name, each in ms.items()}
        return {
            "pass": pass_,
            "b": b,
            "side": side,
            "ms": ms,
            "best_ms": best,
            "images_per_second": {name: 1e3 * b / t for name, t in best.items()},
            "speed_of_resnet50": {name: best[BASELINE] / t for name, t in best.items()},
            "peak_bytes": peaks(b, side) if pass_ == "training" and not settings.quick else None,
        }

    return Job(f"ResNet-50 on {b} images of {side} x {side}, {pass_}", settings.rounds, run)


def ready(name: str, layout: Format, pass_: ModelPass, b: int, side: int) -> Run:
    """A pass of a network, ready to be timed."""
    x = images(b, side, layout)
    return PASSES[pass_](convert(settle(networks()[name](), x), layout), x)


def images(b: int, side: int, layout: Format) -> Tensor:
    return torch.randn(b, 3, side, side).contiguous(memory_format=MEMORY_FORMATS[layout])


def peaks(b: int, side: int) -> Mapping[str, int | None]:
    """Peak memory of a training step of each network, in the memory format that needs less."""
    found: dict[str, int | None] = {}
    for name in networks():
        of_formats = [peak_in_fresh_process(subject, name=name, b=b, side=side, layout=f) for f in MEMORY_FORMATS]
        known = [peak for peak in of_formats if peak is not None]
        found[name] = min(known) if known else None
    return found


def subject(name: str, b: int, side: int, layout: Format) -> Subject:
    return Subject(convert(networks()[name](), layout), images(b, side, layout), images(2, 64, layout))
