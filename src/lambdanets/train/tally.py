"""Accuracy and loss from sums over images: one rule for the rows of metrics.csv and for the figures at the end."""

from dataclasses import dataclass

from jaxtyping import Float, Int64
from torch import Tensor, distributed
from torch.nn.functional import cross_entropy

from lambdanets.data import PADDING
from lambdanets.train.strategies import several

TOP = 5


@dataclass
class Tally:
    """Sums over the images so far; those with the label `PADDING` do not count.

    >>> tally = Tally(classes=3)
    >>> _ = tally.add(torch.tensor([[2.0, 0.0, 0.0], [2.0, 0.0, 0.0]]), torch.tensor([0, 1]))
    >>> tally.accuracy, tally.top5, round(tally.mean_loss, 2)
    (0.5, None, 1.24)
    """

    classes: int
    images: int = 0
    loss: float = 0.0
    correct: int = 0
    among_top: int = 0

    def add(self, scores: Float[Tensor, "b k"], labels: Int64[Tensor, "b"]) -> Float[Tensor, "b"]:
        """The loss of each image, 0 for padding."""
        scores = scores.float()
        losses = cross_entropy(scores, labels, reduction="none", ignore_index=PADDING)
        top = scores.topk(min(TOP, self.classes)).indices == labels[:, None]
        self.images += int((labels != PADDING).sum())
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

    def of_all_processes(self) -> "Tally":
        if not several():
            return self
        everybodys: list[Tally] = [self] * distributed.get_world_size()
        distributed.all_gather_object(everybodys, self)
        return Tally(
            self.classes,
            images=sum(one.images for one in everybodys),
            loss=sum(one.loss for one in everybodys),
            correct=sum(one.correct for one in everybodys),
            among_top=sum(one.among_top for one in everybodys),
        )
