"""The Lightning module that trains a network for a task."""

from collections import OrderedDict
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, distributed, nn

from lambdanets.compat import foreach_mul_
from lambdanets.data import Batch
from lambdanets.train.averages import (
    WEIGHTS_REMEMBER,
    Pairs,
    decay_at,
    decay_for,
    pairs_of,
    set_norm_decay,
    update_average,
)
from lambdanets.train.config import OptimConfig
from lambdanets.train.schedule import Steps, lr_factor, make_optimizer
from lambdanets.train.state_dicts import below
from lambdanets.train.strategies import agree_on_buffers, is_distributed, local, shard
from lambdanets.train.task import Loss, Metrics, Task

TINY = 1e-9  # instead of a weight of 0


class Learner(LightningModule):
    """Trains `model`; `average`, the moving average of its weights, is evaluated and saved."""

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        optim: OptimConfig,
        steps: Steps,
    ) -> None:
        super().__init__()
        self.task, self.optim, self.steps = task, optim, steps
        self.model = model.to(memory_format=task.memory_format)  # type: ignore[call-overload]
        set_norm_decay(model, optim.bn_decay, steps.run)
        self.average = deepcopy(model).requires_grad_(False)
        self.decay = decay_for(optim.ema_decay, steps.run, WEIGHTS_REMEMBER)
        self.validated: Metrics = task.metrics()
        self.figures: dict[str, float] = {}  # of the last validation
        self.last_loss: Loss | None = None  # of the last batch
        # Since the last step; the guard checks them before the next one.
        self.losses: list[Tensor] = []
        self.weights: list[int | float] = []
        self.names: list[str] = []
        self.is_healthy = True
        self.pairs: Pairs | None = None  # set at the first step, because strategies may replace tensors before

    def configure_model(self) -> None:
        """Shard the networks if the strategy has a mesh; Lightning does not synchronise batch norms in that case."""
        if self.device_mesh is None:
            return
        if self.device_mesh.device_type == "cuda":
            self.model = nn.SyncBatchNorm.convert_sync_batchnorm(self.model)
        for network in (self.model, self.average):
            shard(network, self.device_mesh)

    def train(self, mode: bool = True) -> "Learner":
        """Set the mode of `model`; the average stays in eval mode."""
        super().train(mode)
        self.average.eval()
        return self

    def training_step(self, batch: Batch, _: int) -> Tensor:
        loss = self.task.loss(self.model, batch)
        mean = loss.total / (self.nominal_weight() or max(loss.weight, TINY))
        self.last_loss = loss.detached()
        self.losses.append(mean.detach())
        self.weights.append(loss.weight)
        self.names += batch.names
        return mean

    def nominal_weight(self) -> float | None:
        """The divisor of the loss if several processes or batches make up a step; None if each step is one batch.

        The total weight is known only after the last batch, so `rescale_gradients` corrects the gradients then. If all
        batches have the nominal weight, as complete batches of images do, it changes nothing.
        """
        if self.trainer.world_size == 1 and self.trainer.accumulate_grad_batches == 1:
            return None
        batches = self.trainer.accumulate_grad_batches * self.trainer.world_size
        return self.task.item_weight * max(1, self.steps.items // batches)

    def rescale_gradients(self) -> None:
        """Make the gradient that of the summed loss over the summed weight of all processes and batches."""
        nominal = self.nominal_weight()
        if nominal is None:
            return
        weight = torch.tensor(sum(self.weights), dtype=torch.float64, device=self.device)
        if is_distributed():
            distributed.all_reduce(weight)
        # Lightning has divided by the number of batches, DDP by the number of processes.
        divided_by = nominal * self.trainer.accumulate_grad_batches * self.trainer.world_size
        factor = divided_by / max(float(weight), TINY)
        gradients = [local(p.grad) for p in self.model.parameters() if p.grad is not None]
        if factor != 1 and gradients:
            foreach_mul_(gradients, factor)

    def on_before_optimizer_step(self, optimizer: object) -> None:
        self.rescale_gradients()

    def optimizer_step(self, *arguments: Any, **more: Any) -> None:
        """Update the average, unless the guard skipped the step."""
        super().optimizer_step(*arguments, **more)
        self.losses, self.weights, self.names = [], [], []
        if self.is_healthy:
            self.pairs = self.pairs or pairs_of(self.average, self.model)
            update_average(self.pairs, decay_at(self.trainer.global_step, self.decay))

    def on_validation_epoch_start(self) -> None:
        agree_on_buffers(self.average)
        self.validated = self.task.metrics()

    def validation_step(self, batch: Batch, _: int) -> None:
        self.task.validate(self.average, batch, self.validated)

    def on_validation_epoch_end(self) -> None:
        self.figures = of_all_processes(self.validated).figures()
        self.log_dict(self.figures)

    def configure_optimizers(self) -> Any:
        optimizer = make_optimizer(self.model, self.optim, self.steps.items)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: lr_factor(step, self.steps, self.optim))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def averaged_weights(checkpoint: Mapping[str, Any]) -> OrderedDict[str, Any]:
    """The state dict of the weight average in a checkpoint; KeyError, TypeError or AttributeError if there is none."""
    weights = below(checkpoint["state_dict"], "average")
    for name, tensor in weights.items():
        weights[name] = tensor.contiguous()
    return weights


def of_all_processes(metrics: Metrics) -> Metrics:
    if not is_distributed():
        return metrics
    gathered: list[Metrics] = [metrics] * distributed.get_world_size()
    distributed.all_gather_object(gathered, metrics)
    return metrics.merge(gathered)
