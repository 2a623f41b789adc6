"""What every entry of a comparison gets: the same data, network, epochs and seeds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Budget:
    """`recipe` is one of `lambdanets train`; the rest changes it, so that all entries of a comparison fit an hour."""

    recipe: str
    image_size: int
    epochs: int
    limit: int | None = None  # images of training, the first ones
    width: int = 16
    more: Mapping[str, Any] = field(default_factory=dict)

    def settings(self, seed: int) -> list[str]:
        """As `lambdanets train` takes them."""
        return [
            f"seed={seed}",
            f"trainer.max_epochs={self.epochs}",
            "trainer.enable_progress_bar=false",
            f"data.limit={self.limit}",
            f"model.width={self.width}",
            f"data.image_size={self.image_size}",
            *(f"{key}={value}" for key, value in self.more.items()),
        ]


BUDGETS = {
    "digits": Budget("digits", 8, epochs=20),
    "fashion-mnist": Budget(
        "fashion-mnist",
        14,  # of 28: global attention would take hours otherwise
        epochs=3,
        limit=6_400,
        width=8,
        # On the way only a glance: all test images are seen at the end, which takes a third of the time as it is.
        more={"data.batch_size": 64, "data.padding": 1, "optim.lr": 0.1, "trainer.limit_val_batches": 1},
    ),
    "cifar10": Budget("cifar10", 32, epochs=6, limit=12_800),
}
QUICK = Budget("digits", 8, epochs=3, width=8, more={"optim.warmup_epochs": 0.5})
