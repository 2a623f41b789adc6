"""A task as small as a task can be: fit a line through numbers that come in sequences of different lengths."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from lambdanets.data import Batch, Data, DataConfig, Item, Split, Splits, UnitBudget
from lambdanets.train.config import RunConfig
from lambdanets.train.task import Loss, Prediction, Score, Task


class Sequences(Split):
    """Sequence i has 1 + i % 5 numbers."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    @property
    def lengths(self) -> Tensor:
        return 1 + torch.arange(self.size) % 5

    def item(self, index: int) -> Item:
        return Item(str(index), lambda: torch.arange(int(self.lengths[index])) + 0.1 * index)


class Padded(NamedTuple):
    x: Tensor  # b n
    counts: Tensor  # b n: False for padding


@dataclass
class SquaredError:
    total: float = 0.0
    numbers: int = 0
    names: tuple[str, ...] = ()

    def merge(self, others: Sequence["SquaredError"]) -> "SquaredError":
        names = tuple(name for one in others for name in one.names)
        return SquaredError(sum(one.total for one in others), sum(one.numbers for one in others), names)

    def figures(self) -> dict[str, float]:
        return {"val_error": self.total / self.numbers}


class FitLine(Task):
    name = "fit-line"
    unit, items = "numbers", "sequences"
    score = Score("val_error", "error")
    sections: ClassVar[Mapping[str, type]] = {"data": DataConfig}

    @classmethod
    def check(cls, config: RunConfig) -> None: ...

    @classmethod
    def open(cls, config: RunConfig) -> Splits:
        return Splits(Sequences(config.data.limit or 40), Sequences(11))

    @classmethod
    def create(cls, config: RunConfig, splits: Splits) -> "FitLine":
        return cls()

    def train_example(self, read: Tensor) -> Tensor:
        return read

    val_example = train_example

    def collate(self, examples: Sequence[Tensor]) -> Batch:
        x = nn.utils.rnn.pad_sequence(list(examples), batch_first=True)
        counts = torch.arange(x.shape[1]) < torch.tensor([len(one) for one in examples])[:, None]
        return Batch(inputs=Padded(x, counts), counts=counts.sum(1).tolist())

    def filler(self) -> Batch:
        return Batch(inputs=Padded(torch.zeros(1, 1), torch.ones(1, 1) > 0), counts=[1], valid=torch.tensor([False]))

    def by_length(self, splits: Splits, budget: int, batch_size: int) -> Data:
        """Batches of at most so many numbers; `batch_size` is nominal."""
        return Data(
            splits=splits,
            train_example=self.train_example,
            val_example=self.val_example,
            collate=self.collate,
            filler=self.filler,
            batch_size=batch_size,
            train_batching=UnitBudget(splits.train.lengths, budget),
        )

    def errors(self, network: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        x, counts = batch.inputs
        counts = counts & batch.valid[:, None]
        return (self.forward(network, batch) - (3 * x + 1)).square() * counts, counts

    def loss(self, network: nn.Module, batch: Batch) -> Loss:
        errors, counts = self.errors(network, batch)
        return Loss(errors.sum(), int(counts.sum()), {"largest": errors.detach().max()})

    def forward(self, network: nn.Module, batch: Batch) -> Tensor:
        return network(batch.inputs.x[..., None])[..., 0]

    def metrics(self) -> SquaredError:
        return SquaredError()

    def validate(self, network: nn.Module, batch: Batch, metrics: SquaredError) -> None:
        errors, counts = self.errors(network, batch)
        metrics.total += float(errors.sum())
        metrics.numbers += int(counts.sum())
        metrics.names += tuple(name for name, valid in zip(batch.names, batch.valid, strict=False) if valid)

    def report(self, network: nn.Module, batches: Iterable[Batch]) -> Any:
        raise NotImplementedError

    def predict(self, network: nn.Module, inputs: Sequence[str], *, top: int) -> Iterator[Prediction]:
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "FitLine":
        return cls()

    def check_network(self, network: nn.Module) -> None: ...

    def check_same(self, saved: Any) -> None: ...
