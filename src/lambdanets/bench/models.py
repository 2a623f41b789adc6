"""torchvision's ResNet-50 beside ours with lambda layers in all stages, and in the last two."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lambdanets.bench.formats import MEMORY_FORMATS, Format, convert
from lambdanets.bench.gate import check, check_training
from lambdanets.bench.job import Job, Row, Track
from lambdanets.bench.passes import Pass, Run, forward
from lambdanets.models import create_model
from lambdanets.nn import LambdaLayer2d
from lambdanets.timing import best_times


@dataclass(frozen=True)
class Settings:
    rounds: int = 5
    format: Format = "contiguous"
    quick: bool = False

    @property
    def images(self) -> tuple[int, int]:
        """How many, and their side."""
        return (2, 64) if self.quick else (8, 224)


def resnet50() -> nn.Module:
    from torchvision.models import resnet50

    network: nn.Module = resnet50()
    return network


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "resnet50": resnet50,
    "lambda_resnet50": lambda: create_model("lambda_resnet50"),
    "CCLL": lambda: create_model("lambda_resnet50", placement="CCLL"),
}


def training_step(network: nn.Module, x: Tensor) -> Run:
    """A step of gradient descent on a cross entropy, so small that the weights stay what they are."""
    network.train()
    labels = torch.arange(len(x))
    optimiser = torch.optim.SGD(network.parameters(), lr=1e-9, momentum=0.9)

    def run() -> object:
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(network(x), labels)
        loss.backward()
        return optimiser.step()

    return run


def check_layers(network: nn.Module) -> None:
    """One layer of each width against the oracle."""
    layers = [m for m in network.modules() if isinstance(m, LambdaLayer2d)]
    for layer in {layer.d_in: layer for layer in layers}.values():
        x = torch.randn(2, layer.d_in, 14, 14)
        check(layer, x)
        check_training(layer, x)


PASSES = {"forward": forward, "training": training_step}


def jobs(settings: Settings) -> list[Job]:
    return [job("forward", settings), job("training", settings)]


def job(pass_: Pass, settings: Settings) -> Job:
    b, side = settings.images

    def run(track: Track) -> Row:
        torch.manual_seed(0)
        x = torch.randn(b, 3, side, side).contiguous(memory_format=MEMORY_FORMATS[settings.format])
        networks = {name: convert(build(), settings.format) for name, build in NETWORKS.items()}
        check_layers(networks["lambda_resnet50"])
        runs = {name: PASSES[pass_](network, x) for name, network in networks.items()}
        best = best_times(runs, track(range(settings.rounds)))
        return {
            "pass": pass_,
            "b": b,
            "side": side,
            "ms": {name: 1e3 * t for name, t in best.items()},
            "parameters": {name: sum(p.numel() for p in net.parameters()) for name, net in networks.items()},
            "over_resnet50": {name: t / best["resnet50"] for name, t in best.items() if name != "resnet50"},
        }

    return Job(f"ResNet-50 on {b} images of {side} x {side}, {pass_}", settings.rounds, run)
