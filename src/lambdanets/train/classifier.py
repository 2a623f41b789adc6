"""A network that learns to name images, as Lightning trains it."""

from copy import deepcopy
from typing import Any

import torch
from jaxtyping import Float, UInt8
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

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
from lambdanets.train.mixing import Mixing
from lambdanets.train.prepare import Prepare
from lambdanets.train.schedule import Steps, make_optimizer, share_of_lr
from lambdanets.train.strategies import agree_on_buffers, shard
from lambdanets.train.tally import Tally


class Classifier(LightningModule):
    """`model` learns; `average`, the moving average of its weights, is what is evaluated and kept."""

    def __init__(
        self,
        model: nn.Module,
        optim: OptimConfig,
        steps: Steps,
        *,
        classes: int,
        prepare: Prepare,
        mixing: Mixing | None = None,
    ) -> None:
        super().__init__()
        self.optim, self.steps, self.prepare, self.mixing = optim, steps, prepare, mixing
        self.model = model.to(memory_format=prepare.memory_format)  # type: ignore[call-overload]
        set_norm_decay(model, optim.bn_decay, steps.run)
        self.average = deepcopy(model).requires_grad_(False)
        self.decay = decay_for(optim.ema_decay, steps.run, WEIGHTS_REMEMBER)
        self.classes, self.tally = classes, Tally(classes)
        self.figures: dict[str, float] = {}  # of the last validation
        # Since the last step: what the guard looks at before the next.
        self.losses: list[Tensor] = []
        self.names: list[str] = []
        self.is_healthy = True
        self.pairs: Pairs | None = None  # not before the first step: until then strategies may replace tensors

    def configure_model(self) -> None:
        """Lightning has a mesh where the strategy wants shards, and synchronises norms everywhere but there."""
        if self.device_mesh is None:
            return
        if self.device_mesh.device_type == "cuda":
            self.model = nn.SyncBatchNorm.convert_sync_batchnorm(self.model)
        for network in (self.model, self.average):
            shard(network, self.device_mesh)

    def train(self, mode: bool = True) -> "Classifier":
        """The average never trains."""
        super().train(mode)
        self.average.eval()
        return self

    def forward(self, images: UInt8[Tensor, "b c i j"]) -> Float[Tensor, "b k"]:
        """What the average says."""
        scores: Tensor = self.average(self.prepare(images))
        return scores

    def training_step(self, batch: Batch, _: int) -> Tensor:
        images, labels = self.prepare(batch.images), batch.labels
        if self.mixing is not None:
            images, labels = self.mixing(images, labels)
        loss = cross_entropy(self.model(images), labels, label_smoothing=self.optim.label_smoothing)
        self.losses.append(loss.detach())
        self.names += batch.names
        return loss

    def optimizer_step(self, *arguments: Any, **more: Any) -> None:
        """A step that the guard called off leaves the average as it was."""
        super().optimizer_step(*arguments, **more)
        self.losses, self.names = [], []
        if self.is_healthy:
            self.pairs = self.pairs or pairs_of(self.average, self.model)
            update_average(self.pairs, decay_at(self.trainer.global_step, self.decay))

    def on_validation_epoch_start(self) -> None:
        agree_on_buffers(self.average)
        self.tally = Tally(self.classes)

    def validation_step(self, batch: Batch, _: int) -> None:
        self.tally.add(self(batch.images), batch.labels)

    def on_validation_epoch_end(self) -> None:
        tally = self.tally.of_all_processes()
        self.figures = {"val_loss": tally.mean_loss, "val_accuracy": tally.accuracy}
        if tally.top5 is not None:
            self.figures["val_accuracy_top5"] = tally.top5
        self.log_dict(self.figures)

    def configure_optimizers(self) -> Any:
        optimizer = make_optimizer(self.model, self.optim, self.steps.images)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: share_of_lr(step, self.steps.run, self.steps.warmup)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
