"""A ResNet-50 beside the same network with a lambda layer for each 3x3 convolution of its bottlenecks."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lambdanets.bench.formats import MEMORY_FORMATS, Format, convert
from lambdanets.bench.gate import check, check_training
from lambdanets.bench.job import Job, Row, Track
from lambdanets.bench.passes import Pass, Run, forward
from lambdanets.bench.timing import best_times
from lambdanets.nn import LambdaLayer2d


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


def lambda_resnet50() -> nn.Module:
    network = resnet50()
    for name, block in network.named_modules():
        convolution = getattr(block, "conv2", None)
        if isinstance(convolution, nn.Conv2d) and name.startswith("layer"):
            (stride, _), width = convolution.stride, convolution.out_channels
            block.conv2 = LambdaLayer2d(convolution.in_channels, width, stride=stride)
    return network


NETWORKS = {"resnet50": resnet50, "lambda resnet50": lambda_resnet50}


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
    """One layer of each width against the oracle; layers with a stride take another way and are tested elsewhere."""
    layers = [m for m in network.modules() if isinstance(m, LambdaLayer2d) and max(m.stride) == 1]
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
        check_layers(networks["lambda resnet50"])
        runs = {name: PASSES[pass_](network, x) for name, network in networks.items()}
        best = best_times(runs, track(range(settings.rounds)))
        return {
            "pass": pass_,
            "b": b,
            "side": side,
            "ms": {name: 1e3 * t for name, t in best.items()},
            "parameters": {name: sum(p.numel() for p in net.parameters()) for name, net in networks.items()},
            "lambda_over_convolution": best["lambda resnet50"] / best["resnet50"],
        }

    return Job(f"ResNet-50 on {b} images of {side} x {side}, {pass_}", settings.rounds, run)
