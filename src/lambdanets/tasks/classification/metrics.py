"""Accuracy and loss as sums over images, used for both metrics.csv and the report."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import cross_entropy

IGNORED = -1  # the label of an image that is not valid
TOP = 5


@dataclass
class Accuracy:
    """Sums over the images so far; those with the label `IGNORED` do not count.

    >>> import torch
    >>> metrics = Accuracy(classes=3)
    >>> _ = metrics.add(torch.tensor([[2.0, 0.0, 0.0], [2.0, 0.0, 0.0]]), torch.tensor([0, 1]))
    >>> metrics.accuracy, metrics.top5, round(metrics.mean_loss, 2)
    (0.5, None, 1.24)
    """

    classes: int
    images: int = 0
    loss: float = 0.0
    correct: int = 0
    among_top: int = 0

    def add(self, scores: Float[Tensor, "b k"], labels: Int64[Tensor, "b"]) -> Float[Tensor, "b"]:
        """Add images; returns the loss of each, 0 for ignored ones."""
        scores = scores.float()
        losses = cross_entropy(scores, labels, reduction="none", ignore_index=IGNORED)
        top = scores.topk(min(TOP, self.classes)).indices == labels[:, None]
        self.images += int((labels != IGNORED).sum())
        self.loss += float(losses.sum())
        self.correct += int((scores.argmax(1) == labels).sum())
        self.among_top += int(top.sum())
        return losses

    @property
    def accuracy(self) -> float:
        return self.correct / max(1, self.images)

    @property
    def mean_loss(self) -> float:
        return self.loss / max(1, self.images)

    @property
    def top5(self) -> float | None:
        """None where there are five classes or fewer."""
        return self.among_top / max(1, self.images) if self.classes > TOP else None

    def merge(self, others: Sequence["Accuracy"]) -> "Accuracy":
        return Accuracy(
            self.classes,
            images=sum(one.images for one in others),
            loss=sum(one.loss for one in others),
            correct=sum(one.correct for one in others),
            among_top=sum(one.among_top for one in others),
        )

    def figures(self) -> dict[str, float]:
        figures = {"val_loss": self.mean_loss, "val_accuracy": self.accuracy}
        return figures if self.top5 is None else figures | {"val_accuracy_top5": self.top5}
