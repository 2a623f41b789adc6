"""How a trained network does on images it was not trained with: which it gets wrong, and what it takes them for."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from lambdanets.data import PADDING, Batch, DataError, open_data
from lambdanets.nn.modes import evaluating
from lambdanets.train.assemble import fastest_device, with_preparation, with_statistics
from lambdanets.train.config import ConfigError
from lambdanets.train.folder import RunError, RunFolder
from lambdanets.train.pictures import Mistake
from lambdanets.train.tally import Tally

SHOWN = 24  # mistakes


@dataclass(frozen=True)
class Evaluation:
    images: int
    skipped: int  # could not be read
    loss: float
    accuracy: float
    top5: float | None  # None where there are five classes or fewer
    confusion: Int64[Tensor, "k k"]  # [true, guessed]
    worst: list[Mistake]  # largest losses first

    def figures(self) -> dict[str, float | int | None]:
        names = ("images", "skipped", "loss", "accuracy", "top5")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        parts = [f"accuracy {self.accuracy:.2%} of {self.images:,} images"]
        if self.top5 is not None:
            parts.append(f"{self.top5:.2%} among the first five")
        parts.append(f"loss {self.loss:.4f}")
        if self.skipped:
            parts.append(f"{self.skipped} images could not be read")
        return ", ".join(parts)


@torch.no_grad()
def evaluate(network: nn.Module, batches: Iterable[Batch], classes: Sequence[str]) -> Evaluation:
    """`network` goes from the bytes of images to scores of classes."""
    k, device = len(classes), next(network.parameters()).device
    confusion = torch.zeros(k, k, dtype=torch.int64)
    tally, skipped = Tally(k), 0
    worst: list[tuple[float, Mistake]] = []
    with evaluating(network):
        for batch in batches:
            skipped += len(batch.skipped)
            scores, labels = network(batch.images.to(device)).float().cpu(), batch.labels
            losses, counted = tally.add(scores, labels), labels != PADDING
            confusion += torch.bincount((labels * k + scores.argmax(1))[counted], minlength=k * k).view(k, k)
            worst = sorted([*worst, *mistakes(batch, scores, losses, classes)], key=lambda one: -one[0])[:SHOWN]
    return Evaluation(
        images=tally.images,
        skipped=skipped,
        loss=tally.mean_loss,
        accuracy=tally.accuracy,
        top5=tally.top5,
        confusion=confusion,
        worst=[mistake for _, mistake in worst],
    )


def mistakes(
    batch: Batch, scores: Float[Tensor, "b k"], losses: Float[Tensor, "b"], classes: Sequence[str]
) -> Iterator[tuple[float, Mistake]]:
    """The wrong answers of a batch with their losses."""
    probabilities = scores.softmax(1)
    chances, guesses = probabilities.max(1)
    is_wrong = (guesses != batch.labels) & (batch.labels != PADDING)
    for i in is_wrong.nonzero().flatten().tolist():
        label, guess = int(batch.labels[i]), int(guesses[i])
        yield (
            float(losses[i]),
            Mistake(
                image=batch.images[i],
                name=batch.names[i],
                label=classes[label],
                guess=classes[guess],
                guess_probability=float(chances[i]),
                label_probability=float(probabilities[i, label]),
            ),
        )


def evaluate_run(
    run: RunFolder, changes: Sequence[str] = (), complain: Callable[[str], object] = lambda _: None
) -> Evaluation:
    """A run's network on its own data, or on what changes of its section `data.` say.

    `complain` hears of damaged checkpoints that were passed over.
    """
    others = [change for change in changes if not change.startswith("data.")]
    if others:
        raise ConfigError(f"only data. can be changed for an evaluation, got {', '.join(others)}")
    config = run.config(changes)
    network, complaints = run.network()
    for complaint in complaints:
        complain(complaint)
    data = open_data(config.data)
    run.refuse_other_classes(data.classes)
    if data.channels != network.config.in_chans:
        raise RunError(f"{run.path} takes images with {network.config.in_chans} channels, the data has {data.channels}")
    config = with_statistics(config, data.channels)
    assert config.data.image_size is not None
    loader = data.evaluation_loader(config.data.image_size)
    try:
        return evaluate(with_preparation(config, network.to(fastest_device())), loader, data.classes)
    except DataError:
        raise
    except ValueError as error:  # of a network that does not take images of another size
        raise RunError(f"{run.path}: {error}") from error
