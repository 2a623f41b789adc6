"""Moving averages: of the weights, which are what is evaluated, and of the statistics in batch norms.

The published decays, 0.9999 both, remember some 10,000 steps. A shorter run has to forget faster, or what is evaluated
stays near the start: weights remember at most a tenth of a run, batch norms, which must settle before the weights'
average reads them, a hundredth.
"""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from lambdanets.train.strategies import local

WEIGHTS_REMEMBER, NORMS_REMEMBER = 1 / 10, 1 / 100  # of the steps of a run, at most
FASTEST_NORM = 0.9  # the decay that torch gives to batch norms


def decay_for(decay: float, steps: int, share: float) -> float:
    """The published decay, or a faster one that remembers `share` of a run of so many steps.

    >>> decay_for(0.9999, 1_000_000, 0.1), decay_for(0.9999, 1000, 0.1)
    (0.9999, 0.99)
    """
    return max(0.0, min(decay, 1 - 1 / (share * steps)))


def set_norm_decay(model: nn.Module, decay: float, steps: int) -> None:
    """torch's momentum is what others call one minus the decay."""
    decay = max(min(decay, FASTEST_NORM), decay_for(decay, steps, NORMS_REMEMBER))
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.momentum = 1 - decay


def decay_at(step: int, decay: float) -> float:
    """The first averages remember all there was, for at first that is little.

    >>> [round(decay_at(step, 0.99), 2) for step in (1, 10, 10_000)]
    [0.18, 0.55, 0.99]
    """
    return min(decay, (1 + step) / (10 + step))


@torch.no_grad()
def update_average(average: nn.Module, model: nn.Module, decay: float) -> None:
    """Of weights, shard by shard where they have some, and of statistics; whole numbers are copied."""
    pairs = list(zip(state_of(average), state_of(model), strict=True))
    averaged = [pair for pair in pairs if pair[0].is_floating_point()]
    torch._foreach_lerp_([old for old, _ in averaged], [new for _, new in averaged], 1 - decay)
    for old, new in pairs:
        if not old.is_floating_point():
            old.copy_(new)


def state_of(model: nn.Module) -> list[Tensor]:
    """Each tensor once, though shared tables have several names."""
    return [local(tensor) for tensor in (*model.parameters(), *model.buffers())]
