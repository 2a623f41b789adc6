"""Moving averages of the weights, which are evaluated, and of batch-norm statistics.

The published decays, both 0.9999, average over about 10,000 steps. In a shorter run the average would stay near the
initial weights. So the weights are averaged over at most a tenth of a run, batch-norm statistics over a hundredth:
they must settle before the average of the weights uses them. `norm_statistics` re-estimates those of the average.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from lambdanets.compat import BatchNorm, foreach_copy_, foreach_lerp_
from lambdanets.train.strategies import local

WEIGHTS_REMEMBER, NORMS_REMEMBER = 1 / 10, 1 / 100  # of the steps of a run, at most


def decay_for(decay: float, steps: int, share: float) -> float:
    """The given decay, or a smaller one that averages over `share` of a run of `steps` steps.

    >>> decay_for(0.9999, 1_000_000, 0.1), decay_for(0.9999, 1000, 0.1)
    (0.9999, 0.99)
    """
    return max(0.0, min(decay, 1 - 1 / (share * steps)))


def set_norm_decay(model: nn.Module, decay: float, steps: int) -> None:
    """Set the momentum of all batch norms, which is one minus the decay in torch."""
    decay = decay_for(decay, steps, NORMS_REMEMBER)
    for module in model.modules():
        if isinstance(module, BatchNorm):
            module.momentum = 1 - decay


def decay_at(step: int, decay: float) -> float:
    """The decay at a step; smaller at the start, so that the initial weights are forgotten quickly.

    >>> [round(decay_at(step, 0.99), 2) for step in (1, 10, 10_000)]
    [0.18, 0.55, 0.99]
    """
    return min(decay, (1 + step) / (10 + step))


class Pairs(NamedTuple):
    """The tensors of an average and of its network, collected once: collecting takes longer than averaging."""

    old: list[Tensor]
    new: list[Tensor]
    old_counts: list[Tensor]  # integers
    new_counts: list[Tensor]


def pairs_of(average: nn.Module, model: nn.Module) -> Pairs:
    """Weights, or their local shards, and statistics."""
    pairs = list(zip(state_of(average), state_of(model), strict=True))
    averaged = [pair for pair in pairs if pair[0].is_floating_point()]
    counts = [pair for pair in pairs if not pair[0].is_floating_point()]
    return Pairs(*([pair[side] for pair in kind] for kind in (averaged, counts) for side in (0, 1)))


@torch.no_grad()
def update_average(pairs: Pairs, decay: float) -> None:
    """Move the average towards the network; integers are copied."""
    foreach_lerp_(pairs.old, pairs.new, 1 - decay)
    if pairs.old_counts:
        foreach_copy_(pairs.old_counts, pairs.new_counts)


def state_of(model: nn.Module) -> list[Tensor]:
    """All parameters and buffers, each once even if it has several names."""
    return [local(tensor) for tensor in (*model.parameters(), *model.buffers())]
