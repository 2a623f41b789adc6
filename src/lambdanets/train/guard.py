"""Skip steps whose loss or gradients are NaN or Inf."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from lambdanets.compat import foreach_copy_, foreach_non_finite_check_and_unscale_, foreach_norm
from lambdanets.train.learner import Learner
from lambdanets.train.strategies import local

IN_A_ROW = 3


class NonFiniteLossError(RuntimeError):
    """Several steps in a row had a loss or gradients that are NaN or Inf, so the run cannot continue."""


class Guard(Callback):
    """Skips a step when its loss or gradients are NaN or Inf.

    Weights, optimiser and average stay as they are, the statistics of batch norms go back to what they were before the
    batch, and the names of its items are added to `file`. The third such step in a row ends the run.
    """

    state_key = "Guard"

    def __init__(self, file: Path) -> None:
        self.file, self.in_a_row = file, 0
        # Collected once: collecting takes as long as checking.
        self.of_one_dtype: list[list[Tensor]] = []  # parameters
        self.buffers: list[Tensor] = []
        self.before: list[Tensor] = []
        self.finder: Finder | None = None

    def state_dict(self) -> dict[str, int]:
        """The count, so that a resumed run continues it."""
        return {"in_a_row": self.in_a_row}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.in_a_row = state_dict["in_a_row"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, Learner)
        by_dtype: dict[torch.dtype, list[Tensor]] = {}
        for parameter in pl_module.model.parameters():
            by_dtype.setdefault(parameter.dtype, []).append(parameter)
        self.of_one_dtype, self.buffers = list(by_dtype.values()), list(pl_module.model.buffers())
        self.finder = Finder(pl_module.device)
        self.before = [buffer.clone() for buffer in self.buffers]

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int) -> None:
        assert isinstance(pl_module, Learner)
        if not pl_module.losses:  # the first batch of a step
            copy_into(self.before, self.buffers)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: object) -> None:
        assert isinstance(pl_module, Learner)
        assert self.finder is not None
        self.finder.look(pl_module.losses)
        # With half precision, the gradient scaler checks the gradients and skips steps itself.
        if getattr(trainer.precision_plugin, "scaler", None) is None:
            for parameters in self.of_one_dtype:
                self.finder.look([local(gradient) for p in parameters if (gradient := p.grad) is not None])
        pl_module.is_healthy = trainer.strategy.reduce_boolean_decision(not self.finder.has_found())
        if pl_module.is_healthy:
            self.in_a_row = 0
            return
        self.in_a_row += 1
        pl_module.model.zero_grad()
        copy_into(self.buffers, self.before)
        self.write(trainer, pl_module)
        if self.in_a_row == IN_A_ROW:
            raise NonFiniteLossError(
                f"the loss or its gradients were NaN or Inf in {IN_A_ROW} steps in a row, up to step "
                f"{trainer.global_step + 1}; {self.file} lists the {pl_module.task.items}; older checkpoints are intact"
            )

    def write(self, trainer: Trainer, module: Learner) -> None:
        """Add one line for this process and its items."""
        losses = [float(loss) for loss in module.losses]
        line = {
            "step": trainer.global_step,
            "rank": trainer.global_rank,
            "losses": losses,
            module.task.items: module.names,
        }
        with self.file.open("a") as file:
            file.write(f"{json.dumps(line)}\n")


class Finder:
    """Finds NaN and Inf.

    On CPUs it uses the check of torch's gradient scaler with a scale of one, which takes a third of the time of norms.
    On other devices that check does not support all dtypes.
    """

    def __init__(self, device: torch.device) -> None:
        self.found, self.one = torch.zeros(1, device=device), torch.ones(1, device=device)

    def look(self, tensors: list[Tensor]) -> None:
        """Check tensors of one dtype."""
        if self.found.is_cpu:
            foreach_non_finite_check_and_unscale_(tensors, self.found, self.one)
        elif tensors:
            self.found += ~torch.stack(foreach_norm(tensors)).isfinite().all()

    def has_found(self) -> bool:
        """Whether NaN or Inf was found since the last call."""
        answer = bool(self.found)
        self.found.zero_()
        return answer


@torch.no_grad()
def copy_into(these: Sequence[Tensor], those: Sequence[Tensor]) -> None:
    if these:
        foreach_copy_(list(these), list(those))
