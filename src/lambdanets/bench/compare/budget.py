"""The budget of a comparison: data, network, epochs and seeds, the same for all entries."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Budget:
    """A recipe of `lambdanets train`, shortened so that all entries of a comparison take about an hour."""

    recipe: str
    image_size: int
    epochs: int
    limit: int | None = None  # training images
    width: int = 16
    more: Mapping[str, Any] = field(default_factory=dict)

    def settings(self, seed: int) -> list[str]:
        """The budget as arguments of `lambdanets train`."""
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
        14,  # instead of 28, because global attention would take hours
        epochs=3,
        limit=6_400,
        width=8,
        # Validate on one batch only. All test images are evaluated at the end, which takes a third of the time.
        more={"data.batch_size": 64, "data.padding": 1, "optim.lr": 0.1, "trainer.limit_val_batches": 1},
    ),
    "cifar10": Budget("cifar10", 32, epochs=6, limit=12_800),
}
QUICK = Budget("digits", 8, epochs=3, width=8, more={"optim.warmup_epochs": 0.5})
