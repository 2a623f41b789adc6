"""Batch-norm statistics of the averaged weights, estimated again from training images.

Running averages follow the weights of training, and in a short run they arrive too late: a network that has learnt
scores as if it had not. `torch.optim.swa_utils.update_bn` is the same remedy for the same reason.
"""

from collections.abc import Callable, Iterable, Iterator

import torch
from jaxtyping import Float
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from lambdanets.data import Opened
from lambdanets.nn.modes import evaluating
from lambdanets.train.classifier import Classifier

SHORT_RUN = 1_000  # steps; shorter runs estimate before every validation, others before the last
# Images, at most. A thousand or more are known to be enough (Wu and Johnson, Rethinking "Batch" in BatchNorm, 2021);
# before every validation a part of that has to do, because it costs a forward pass.
IMAGES, FINAL_IMAGES = 512, 4_096
BATCH = 64  # whatever the number of processes is: the mean of variances within batches depends on their size


class NormStatistics(Callback):
    """Estimates the statistics of the average where they are needed.

    They are a function of the averaged weights and the data alone, and every process computes all of it. So resumed
    runs and any number of processes get the same, and nothing of it has to be saved. Random states and the order of
    training images are not touched.
    """

    def __init__(self, data: Opened, image_size: int) -> None:
        self.data, self.image_size = data, image_size
        self.estimated_step = -1
        self.tell: Callable[[str], object] = lambda _: None  # what a progress bar shows

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, Classifier)
        if pl_module.steps.run < SHORT_RUN or is_last(trainer, pl_module):
            self.estimate(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The end of a run that does not validate there. What is saved after this has the new statistics."""
        assert isinstance(pl_module, Classifier)
        if is_last(trainer, pl_module) and self.estimated_step != trainer.global_step:
            self.estimate(trainer, pl_module)

    def estimate(self, trainer: Trainer, module: Classifier) -> None:
        self.estimated_step = trainer.global_step
        if not norms_of(module.average):
            return
        images = FINAL_IMAGES if is_last(trainer, module) else IMAGES
        self.tell("estimating batch norms")
        with trainer.precision_plugin.forward_context():
            estimate_statistics(module.average, self.batches(module, images))
        self.tell("validating")

    def batches(self, module: Classifier, images: int) -> Iterator[Float[Tensor, "b c i j"]]:
        for batch in self.data.sample_loader(self.image_size, images=images, batch_size=BATCH):
            yield module.prepare(batch.images.to(module.device))


def is_last(trainer: Trainer, module: Classifier) -> bool:
    """Whether no step follows, as far as anybody knows: this epoch is the last, or the run is told to stop."""
    is_last_epoch = trainer.current_epoch + 1 == trainer.max_epochs
    return is_last_epoch or trainer.global_step >= module.steps.run or trainer.should_stop


def norms_of(network: nn.Module) -> list[_BatchNorm]:
    """Batch norms that keep running statistics."""
    return [module for module in network.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]


@torch.no_grad()
def estimate_statistics(network: nn.Module, batches: Iterable[Float[Tensor, "_ c i j"]]) -> None:
    """Replace the running statistics by their mean over `batches`, weighted by the number of images in each.

    For batches of one size this is `torch.optim.swa_utils.update_bn`, except that dropout and drop path are off, as
    they are when the statistics are used. Without batches, and without batch norms, nothing changes.
    """
    norms = norms_of(network)
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    seen = 0
    with evaluating(network):
        for norm in norms:
            norm.training = True
        for images in batches:
            if len(images) < 2:  # at the end of a network one image may be one value, which has no variance
                continue
            if seen == 0:
                for norm in norms:
                    norm.reset_running_stats()
            seen += len(images)
            for norm in norms:
                norm.momentum = len(images) / seen
            network(images)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
