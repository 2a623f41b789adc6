"""The compared networks: torchvision's ResNet-50, ours, and ours with the lambda layers of others or with none."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from lambdanets.bench.gate import agree
from lambdanets.bench.peers import CONTESTANTS, Shape
from lambdanets.compat import BatchNorm
from lambdanets.models import Middle, Place, create_model
from lambdanets.models.middle import Strided
from lambdanets.optional import import_torchvision

BASELINE = "resnet50"
OURS = "lambda_resnet50"


def torchvision_resnet50() -> nn.Module:
    import_torchvision()
    from torchvision.models import resnet50

    network: nn.Module = resnet50()
    return network


def layers_of(peer: str, k: int = 16, h: int = 4, scope: int = 23) -> Middle:
    """Lambda layers of a peer in place of ours, with windows cropped to the map like ours."""

    def make(place: Place) -> nn.Module:
        side = place.size[0]
        layer = CONTESTANTS[peer].build(Shape(side, place.width, k=k, h=h, scope=min(scope, 2 * side - 1)))
        return layer if place.stride == 1 else Strided(layer, place.stride)

    return make


def nothing(place: Place) -> nn.Module:
    """No layer: the rest of the network is an upper bound for the speed with any layer."""
    return nn.Identity() if place.stride == 1 else Strided(nn.Identity(), place.stride)


def networks() -> dict[str, Callable[[], nn.Module]]:
    """Functions that make the networks, by name, without peers that are not installed."""
    made: dict[str, Callable[[], nn.Module]] = {
        BASELINE: torchvision_resnet50,
        OURS: partial(create_model, "lambda_resnet50"),
        "CCLL": partial(create_model, "lambda_resnet50", placement="CCLL"),
        f"{OURS} of nothing": partial(create_model, "lambda_resnet50", middle=nothing),
    }
    for peer, contestant in CONTESTANTS.items():
        if contestant.package is not None and contestant.is_installed():
            made[f"{OURS} of {peer}"] = partial(create_model, "lambda_resnet50", middle=layers_of(peer))
    return made


def settle(network: nn.Module, x: Tensor) -> nn.Module:
    """Make a network realistic: no branches at zero, and fitting running statistics."""
    norms = [module for module in network.modules() if isinstance(module, BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        if not norm.weight.any():
            nn.init.constant_(norm.weight, 0.2)
        norm.momentum = 1.0
    network.train()
    with torch.no_grad():
        network(x)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    return network


def fold_batch_norms(network: nn.Module, x: Tensor) -> nn.Module:
    """Fold batch norms into the preceding convolutions, in eval mode.

    The outputs are compared in float64, because statistics of few images amplify rounding errors.
    """
    network.eval().double()
    small = x[:2, :, :64, :64].double()
    with torch.no_grad():
        before = network(small)
        for name, norm_name in foldable(network):
            convolution, norm = network.get_submodule(name), network.get_submodule(norm_name)
            if isinstance(convolution, nn.Conv2d) and type(norm) is nn.BatchNorm2d:
                network.set_submodule(name, fuse_conv_bn_eval(convolution, norm))
                network.set_submodule(norm_name, nn.Identity())
        agree({"unfolded": before, "folded": network(small)}, "unfolded")
    return network.float()


def foldable(network: nn.Module) -> list[tuple[str, str]]:
    """Names of convolutions and their norms, which are defined in sequence, except in lucidrains' layers.

    timm's layers normalise parts of the output of one convolution, and ours fold their own norms.
    """
    layers = tuple(name for name, module in network.named_modules() if type(module).__name__ == "LambdaLayer")
    leaves = [name for name, module in network.named_modules() if not list(module.children())]
    pairs = list(pairwise(name for name in leaves if not name.startswith(layers)))
    for name in layers:
        if hasattr(network.get_submodule(name), "to_q"):
            pairs += [(f"{name}.to_q", f"{name}.norm_q"), (f"{name}.to_v", f"{name}.norm_v")]
    return pairs
