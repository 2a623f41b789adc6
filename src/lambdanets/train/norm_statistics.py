"""Batch-norm statistics of the averaged weights, re-estimated from training items.

Running averages lag behind the weights, so in a short run the averaged network would score far too low.
`torch.optim.swa_utils.update_bn` does the same for the same reason.
"""

from collections.abc import Callable, Iterable

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

from lambdanets.compat import BatchNorm
from lambdanets.data import Batch, Data
from lambdanets.nn.hooks import temporary_hooks
from lambdanets.nn.modes import evaluating
from lambdanets.train.learner import Learner

SHORT_RUN = 1_000  # steps; shorter runs estimate before every validation, others before the last
# At most this many items. A thousand or more are enough (Wu and Johnson, Rethinking "Batch" in BatchNorm, 2021); before
# every validation fewer are used, because each costs a forward pass.
ITEMS, FINAL_ITEMS = 512, 4_096


class NormStatistics(Callback):
    """Re-estimates the statistics of the average before validation.

    They depend on the averaged weights and the data only, and every process computes all of them. So resumed runs and
    any number of processes get the same statistics, and nothing has to be saved. Random states and the order of
    training items do not change.
    """

    def __init__(self, data: Data) -> None:
        self.data = data
        self.estimated_step = -1
        self.tell: Callable[[str], object] = lambda _: None  # shows a message in the progress bar

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, Learner)
        if pl_module.steps.run < SHORT_RUN or is_last(trainer, pl_module):
            self.estimate(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Estimate at the end of a run that does not validate there, before the last checkpoint."""
        assert isinstance(pl_module, Learner)
        if is_last(trainer, pl_module) and self.estimated_step != trainer.global_step:
            self.estimate(trainer, pl_module)

    def estimate(self, trainer: Trainer, module: Learner) -> None:
        self.estimated_step = trainer.global_step
        if not norms_of(module.average):
            return
        items = FINAL_ITEMS if is_last(trainer, module) else ITEMS
        batches = self.data.sample_loader(items)
        self.tell("estimating batch norms")
        with trainer.precision_plugin.forward_context():
            estimate_statistics(
                module.average,
                (batch.to(module.device) for batch in batches),
                lambda batch: module.task.forward(module.average, batch),
            )
        self.tell("validating")


def is_last(trainer: Trainer, module: Learner) -> bool:
    """Whether no step follows: this epoch is the last, or the run has to stop."""
    is_last_epoch = trainer.current_epoch + 1 == trainer.max_epochs
    return is_last_epoch or trainer.global_step >= module.steps.run or trainer.should_stop


def norms_of(network: nn.Module) -> list[BatchNorm]:
    """Batch norms that keep running statistics."""
    return [module for module in network.modules() if isinstance(module, BatchNorm) and module.track_running_stats]


@torch.no_grad()
def estimate_statistics(network: nn.Module, batches: Iterable[Batch], forward: Callable[[Batch], object]) -> None:
    """Replace the running statistics by their mean over `batches`, weighted by the number of items in each.

    For batches of one size this is `torch.optim.swa_utils.update_bn`, except that dropout and drop path are off, as
    they are when the statistics are used. Without batches, and without batch norms, nothing changes.
    """
    norms = norms_of(network)
    momenta = [norm.momentum for norm in norms]
    seen = dict.fromkeys(norms, 0)
    size = 0

    def average_equally(norm: nn.Module, _: object) -> None:
        """Called before each call of a norm, which a forward pass may call several times."""
        assert isinstance(norm, BatchNorm)
        if not seen[norm]:
            norm.reset_running_stats()
        seen[norm] += size
        norm.momentum = size / seen[norm]

    handles = [norm.register_forward_pre_hook(average_equally) for norm in norms]
    with evaluating(network), temporary_hooks(handles):
        for norm in norms:
            norm.training = True
        for batch in batches if norms else ():
            size = len(batch.names)
            if size > 1:  # one item can be a single value at a norm, which has no variance
                forward(batch)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
