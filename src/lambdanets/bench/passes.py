"""The two timed passes: forward as in inference, forward and backward as in training."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

Run = Callable[[], object]
Pass = Literal["forward", "training"]


def forward(module: nn.Module, x: Tensor) -> Run:
    module.eval()

    def run() -> object:
        with torch.no_grad():
            return module(x)

    return run


def training(module: nn.Module, x: Tensor) -> Run:
    """Forward, then the gradients of the input and of every parameter."""
    module.train()
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    parameters = list(module.parameters())
    with torch.no_grad():
        cotangent = torch.ones_like(module(x))

    def run() -> object:
        return torch.autograd.grad(module(x), [x, *parameters], cotangent)

    return run


PASSES: dict[Pass, Callable[[nn.Module, Tensor], Run]] = {"forward": forward, "training": training}
