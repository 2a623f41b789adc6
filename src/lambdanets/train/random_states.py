"""The random state of every process, in checkpoints."""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, distributed


class RandomStates(Callback):
    """Saves and restores torch's random states of every process, so that dropout and mixup resume exactly.

    They are restored just before the first batch, because start-up draws random numbers. Loaders have their own seeds.
    """

    state_key = "RandomStates"

    def __init__(self) -> None:
        self.wanted: list[dict[str, Tensor]] | None = None

    def state_dict(self) -> dict[str, Any]:
        if self.wanted is not None:  # nothing was drawn since loading
            return {"of_rank": self.wanted}
        own = {"torch": torch.get_rng_state()}
        if torch.cuda.is_available():
            own["cuda"] = torch.cuda.get_rng_state()
        if not distributed.is_available() or not distributed.is_initialized():
            return {"of_rank": [own]}
        gathered: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(gathered, own)
        return {"of_rank": gathered}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.wanted = state_dict["of_rank"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Give each process its own seed; they start with the same one, for equal weights."""
        if trainer.global_rank:
            torch.manual_seed(torch.initial_seed() + trainer.global_rank)

    def on_train_batch_start(self, trainer: Trainer, *rest: Any) -> None:
        of_rank, self.wanted = self.wanted, None
        if of_rank is None or trainer.world_size != len(of_rank):  # another number of processes: start with new states
            return
        own = of_rank[trainer.global_rank]
        torch.set_rng_state(own["torch"])
        if "cuda" in own:
            torch.cuda.set_rng_state(own["cuda"])
