"""The evaluation of a classifier: accuracy, confusion matrix and worst mistakes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from lambdanets.data import Batch
from lambdanets.tasks.classification.confusion import draw_confusion
from lambdanets.tasks.classification.metrics import IGNORED, Accuracy
from lambdanets.tasks.classification.mistakes import SHOWN, Mistake, draw_mistakes


@dataclass(frozen=True)
class ClassificationReport:
    images: int
    skipped: int  # could not be read
    loss: float
    accuracy: float
    top5: float | None  # None where there are five classes or fewer
    confusion: Int64[Tensor, "k k"]  # [true, guessed]
    worst: list[Mistake]  # largest losses first
    classes: Sequence[str]

    @property
    def score(self) -> float:
        return self.accuracy

    def figures(self) -> dict[str, float | int | None]:
        names = ("images", "skipped", "loss", "accuracy", "top5")
        return {name: getattr(self, name) for name in names}

    def draw(self, folder: Path) -> None:
        draw_confusion(self.confusion, self.classes, folder / "confusion.png")
        draw_mistakes(self.worst, folder / "mistakes.png")

    def __str__(self) -> str:
        parts = [f"accuracy {self.accuracy:.2%} of {self.images:,} images"]
        if self.top5 is not None:
            parts.append(f"{self.top5:.2%} among the first five")
        parts.append(f"loss {self.loss:.4f}")
        if self.skipped:
            parts.append(f"{self.skipped} images could not be read")
        return ", ".join(parts)


Answered = tuple[Batch, Tensor, Tensor]  # a batch, scores "b k", labels "b"


def make_report(answers: Iterable[Answered], classes: Sequence[str]) -> ClassificationReport:
    k = len(classes)
    confusion = torch.zeros(k, k, dtype=torch.int64)
    metrics, skipped = Accuracy(k), 0
    worst: list[tuple[float, Mistake]] = []
    for batch, scores, labels in answers:
        skipped += len(batch.skipped)
        losses, counted = metrics.add(scores, labels), labels != IGNORED
        confusion += torch.bincount((labels * k + scores.argmax(1))[counted], minlength=k * k).view(k, k)
        found = mistakes(batch, scores, labels, losses, classes)
        worst = sorted([*worst, *found], key=lambda one: -one[0])[:SHOWN]
    return ClassificationReport(
        images=metrics.images,
        skipped=skipped,
        loss=metrics.mean_loss,
        accuracy=metrics.accuracy,
        top5=metrics.top5,
        confusion=confusion,
        worst=[mistake for _, mistake in worst],
        classes=classes,
    )


def mistakes(
    batch: Batch,
    scores: Float[Tensor, "b k"],
    labels: Int64[Tensor, "b"],
    losses: Float[Tensor, "b"],
    classes: Sequence[str],
) -> Iterator[tuple[float, Mistake]]:
    """The wrong answers of a batch with their losses."""
    probabilities = scores.softmax(1)
    chances, guesses = probabilities.max(1)
    is_wrong = (guesses != labels) & (labels != IGNORED)
    for i in is_wrong.nonzero().flatten().tolist():
        label, guess = int(labels[i]), int(guesses[i])
        yield (
            float(losses[i]),
            Mistake(
                image=batch.inputs.images[i],
                name=batch.names[i],
                label=classes[label],
                guess=classes[guess],
                guess_probability=float(chances[i]),
                label_probability=float(probabilities[i, label]),
            ),
        )
