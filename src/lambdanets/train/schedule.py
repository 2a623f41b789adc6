"""The optimiser, its parameter groups, and the learning-rate schedule."""

import math
from typing import Any, NamedTuple

import torch
from torch import nn

from lambdanets.nn.decay import tables_without_decay
from lambdanets.train.config import OptimConfig, TrainerConfig


def make_optimizer(model: nn.Module, config: OptimConfig, batch_size: int) -> torch.optim.Optimizer:
    """`batch_size`: items in a step, of all devices and accumulated batches."""
    lr = config.lr * (1 if config.lr_batch is None else batch_size / config.lr_batch)
    groups = parameter_groups(model, config.weight_decay)
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=lr, betas=(config.momentum, 0.999))
    return torch.optim.SGD(groups, lr=lr, momentum=config.momentum, nesterov=config.nesterov)


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Exclude norms, biases, relative tables and learned positions from weight decay.

    Decay limits the scale of weights that are followed by a norm, which cancels the scale. The parameters of norms are
    not followed by one.
    """
    tables = tables_without_decay(model)
    decaying: list[nn.Parameter] = []
    staying: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (staying if parameter.ndim < 2 or name in tables else decaying).append(parameter)
    return [{"params": decaying, "weight_decay": weight_decay}, {"params": staying, "weight_decay": 0.0}]


def lr_factor(step: int, steps: "Steps", optim: OptimConfig) -> float:
    """The factor of the largest learning rate: linear warm-up from 0, then the schedule.

    cosine and linear end at 0; step multiplies by `gamma` at each milestone; constant does not change.
    """
    if step < steps.warmup:
        return (step + 1) / steps.warmup  # not 0, so that the first step changes the weights
    if optim.schedule == "constant":
        return 1.0
    if optim.schedule == "step":
        return optim.gamma ** sum(step >= milestone * steps.epoch for milestone in optim.milestones)
    progress = min(1.0, (step - steps.warmup) / max(1, steps.run - steps.warmup))
    return 1 - progress if optim.schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2


# The largest share of a run's steps. The warm-up of a recipe is meant for its own number of epochs; a short trial of it
# would end before the warm-up does. A quarter is fastai's default for one-cycle schedules (torch's OneCycleLR: 0.3),
# and more than any recipe here uses.
MOST_WARMUP = 1 / 4


class Steps(NamedTuple):
    """Numbers of steps, known before a run starts."""

    epoch: int
    run: int
    warmup: int
    items: int  # in a step, of all devices and accumulated batches together


def planned_steps(batches: int, batch_size: int, trainer: TrainerConfig, optim: OptimConfig) -> Steps:
    """The steps of a run with `batches` in an epoch. Lightning's own estimate would load the data."""
    limit = trainer.limit_train_batches
    if isinstance(limit, float):
        batches = int(batches * limit)
    elif limit is not None:
        batches = min(batches, limit)
    epoch = -(-batches // trainer.accumulate_grad_batches)
    run = epoch * trainer.max_epochs
    if trainer.max_steps != -1:
        run = min(run, trainer.max_steps)
    wanted = round(optim.warmup_epochs * epoch) if optim.warmup_steps is None else optim.warmup_steps
    warmup = min(wanted, int(MOST_WARMUP * run))
    return Steps(epoch, run, warmup, batch_size * trainer.accumulate_grad_batches)
