"""A step that would spoil the weights is not taken."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from lambdanets.train.classifier import Classifier
from lambdanets.train.strategies import local

IN_A_ROW = 3


class NonFiniteLossError(RuntimeError):
    """The run cannot go on: several steps in a row would have spoiled the weights."""


class Guard(Callback):
    """Calls a step off when loss or gradients are not finite.

    Weights, optimiser and the average stay as they are, the statistics of batch norms go back to what they were before
    the batch, and the names of its images are added to `file`. The third in a row ends the run.
    """

    def __init__(self, file: Path) -> None:
        self.file, self.in_a_row = file, 0
        # Found once: looking for them takes as long as looking at them.
        self.parameters: list[Tensor] = []
        self.buffers: list[Tensor] = []
        self.before: list[Tensor] = []

    def state_dict(self) -> dict[str, int]:
        """What is in a row stays so when the run is interrupted there."""
        return {"in_a_row": self.in_a_row}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.in_a_row = state_dict["in_a_row"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, Classifier)
        self.parameters, self.buffers = list(pl_module.model.parameters()), list(pl_module.model.buffers())
        self.before = [buffer.clone() for buffer in self.buffers]

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int) -> None:
        assert isinstance(pl_module, Classifier)
        if not pl_module.losses:  # the first batch of a step
            copy_into(self.before, self.buffers)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: object) -> None:
        assert isinstance(pl_module, Classifier)
        is_finite = bool(torch.stack(pl_module.losses).isfinite().all())
        # Half precision has a scaler, which skips steps of its own and looks for a better scale.
        if getattr(trainer.precision_plugin, "scaler", None) is None:
            gradients = [local(p.grad) for p in self.parameters if p.grad is not None]
            is_finite = is_finite and bool(torch.stack(torch._foreach_norm(gradients)).isfinite().all())
        pl_module.is_healthy = trainer.strategy.reduce_boolean_decision(is_finite)
        if pl_module.is_healthy:
            self.in_a_row = 0
            return
        self.in_a_row += 1
        for parameter in self.parameters:
            parameter.grad = None
        copy_into(self.buffers, self.before)
        self.write(trainer, pl_module)
        if self.in_a_row == IN_A_ROW:
            raise NonFiniteLossError(
                f"the loss was not finite in {IN_A_ROW} steps in a row, up to step {trainer.global_step + 1}; "
                f"{self.file} names the images; what was saved before them is good"
            )

    def write(self, trainer: Trainer, module: Classifier) -> None:
        """One line; each process has its own images."""
        losses = [float(loss) for loss in module.losses]
        line = {"step": trainer.global_step, "rank": trainer.global_rank, "losses": losses, "images": module.names}
        with self.file.open("a") as file:
            file.write(f"{json.dumps(line)}\n")


@torch.no_grad()
def copy_into(these: Sequence[Tensor], those: Sequence[Tensor]) -> None:
    if these:
        torch._foreach_copy_(list(these), list(those))
