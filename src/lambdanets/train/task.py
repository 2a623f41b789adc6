"""The protocol of tasks: everything that is specific to what is learnt. The rest of `train` works with any task."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from lambdanets.data import Batch, Data, Splits
from lambdanets.files import read_json, write_atomically
from lambdanets.train.config import RunConfig
from lambdanets.train.panels import Panel

STATE = "task.json"  # in the folder of a saved network


class Score(NamedTuple):
    """The metric that a run is judged by."""

    column: str  # its column in metrics.csv, such as val_accuracy
    label: str  # in texts and tables, such as accuracy
    is_percentage: bool = False  # a fraction that is shown as a percentage

    def show(self, value: float) -> str:
        """
        >>> Score("val_accuracy", "accuracy", is_percentage=True).show(0.98333)
        '98.33 %'
        """
        return f"{100 * value:.2f} %" if self.is_percentage else f"{value:.4g}"


@dataclass(frozen=True)
class Loss:
    """A summed loss and its weight. The learner divides the sums over all processes and accumulated batches."""

    total: Tensor
    weight: int | float  # the number of images, tokens, ... in the sum
    parts: Mapping[str, Tensor] = field(default_factory=dict)  # summed terms of the total, for logging

    def detached(self) -> "Loss":
        return Loss(self.total.detach(), self.weight, {name: part.detach() for name, part in self.parts.items()})


@runtime_checkable
class Metrics(Protocol):
    """Collected over the validation examples so far: sums, or predictions by the names of their examples.

    Processes exchange metrics, so they must be picklable.
    """

    def merge(self, others: Sequence[Any]) -> "Metrics":
        """Merge the metrics of several processes, in the order of their ranks."""

    def figures(self) -> dict[str, float]:
        """Values by column of metrics.csv, including the score."""


@runtime_checkable
class Report(Protocol):
    """The evaluation of a trained network; commands print its `str`."""

    @property
    def score(self) -> float: ...

    def figures(self) -> dict[str, Any]:
        """Numbers by name, for JSON."""

    def draw(self, folder: Path) -> None:
        """Write the pictures of the task into a folder."""


@dataclass(frozen=True)
class Prediction(ABC):
    """The prediction for one input, or the error."""

    input: str
    error: str | None = None

    @abstractmethod
    def cells(self) -> list[str]:
        """The prediction as cells of a table."""

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """The prediction and the error, for JSON."""


class Task(ABC):
    """Data, loss, metrics, report and prediction of what is learnt.

    A task is made in steps: `open` the data, build the network with the keyword arguments that the data determines,
    `complete` the configuration with both, `create` the task. `load` makes a task without the data, for prediction.

    `open` does not know the network, so settings that cut the data into items are keys of `data.`, which
    `network_kwargs` passes to the network. Other results of `open`, such as classes, go into a subclass of `Splits`.
    `complete` writes into the configuration what an evaluation on other data must keep. Tasks are pickled to the
    workers that load data, so they hold settings and no large tensors.
    """

    name: ClassVar[str]
    unit: ClassVar[str]  # the unit of speed: images, tokens, ...
    items: ClassVar[str]  # what the data consists of: images, documents, ...
    score: ClassVar[Score]
    sections: ClassVar[Mapping[str, type]]  # configuration classes that differ from `config.SECTIONS`
    decided_by_data: ClassVar[tuple[str, ...]] = ()  # fields of the network, see `Splits.network`
    panels: ClassVar[tuple[Panel, ...]] = ()  # of curves.png, in addition to loss and learning rate
    memory_format: torch.memory_format = torch.contiguous_format  # of the weights
    item_weight: float = 1.0  # approximate `Loss.weight` of an item, to scale losses in a step of several batches
    pictures: ClassVar[tuple[str, ...]] = ()  # names of the files that a report draws

    @classmethod
    @abstractmethod
    def check(cls, config: RunConfig) -> None:
        """Raise an error for an invalid configuration, without opening the data."""

    @classmethod
    @abstractmethod
    def open(cls, config: RunConfig) -> Splits:
        """Open the data; DataError if it cannot be used."""

    @classmethod
    def adapt_recipe(cls, recipe: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Remove keys of a recipe that the changes make obsolete; both are trees of YAML values."""
        return recipe

    @classmethod
    def network_kwargs(cls, config: RunConfig) -> dict[str, Any]:
        """Keyword arguments of the network that the section `data.` determines."""
        return {}

    @classmethod
    def complete(cls, config: RunConfig, network: Any, splits: Splits | None) -> RunConfig:
        """Fill in the values that the network and, if it was opened, the data determine."""
        return config

    @classmethod
    def incomplete(cls, config: RunConfig) -> list[str]:
        """The keys that `complete` would set and that are missing."""
        return []

    @classmethod
    @abstractmethod
    def create(cls, config: RunConfig, splits: Splits) -> "Task":
        """Create the task of a complete configuration."""

    @abstractmethod
    def train_example(self, read: Any) -> Any:
        """Make an example from what an item reads, in a worker. torch's default generator is seeded for each item."""

    @abstractmethod
    def val_example(self, read: Any) -> Any:
        """The same for validation and prediction."""

    @abstractmethod
    def collate(self, examples: Sequence[Any]) -> Batch:
        """Make a batch of examples. The list is empty if none could be read."""

    @abstractmethod
    def filler(self) -> Batch:
        """A batch without valid examples, which keeps processes in step."""

    def data(self, config: RunConfig, splits: Splits) -> Data:
        return Data(
            splits=splits,
            train_example=self.train_example,
            val_example=self.val_example,
            collate=self.collate,
            filler=self.filler,
            batch_size=config.data.batch_size,
            workers=config.data.workers,
            items=self.items,
        )

    @abstractmethod
    def loss(self, network: nn.Module, batch: Batch) -> Loss:
        """The loss of a training batch. Examples that are not valid must have no weight."""

    @abstractmethod
    def forward(self, network: nn.Module, batch: Batch) -> Any:
        """Run the network on the inputs of a batch, without the targets."""

    @abstractmethod
    def metrics(self) -> Metrics:
        """New, empty metrics."""

    @abstractmethod
    def validate(self, network: nn.Module, batch: Batch, metrics: Any) -> None:
        """Add the valid examples of a batch to `metrics`. `network` has the averaged weights and is in eval mode.

        A prediction must not depend on the other examples of the batch, because processes share batches.
        """

    @abstractmethod
    def report(self, network: nn.Module, batches: Iterable[Batch]) -> Report:
        """Evaluate a network on all batches, at the end of a run or for `lambdanets eval`."""

    @abstractmethod
    def predict(self, network: nn.Module, inputs: Sequence[str], *, top: int) -> Iterator[Prediction]:
        """Predictions for the inputs that a user gives, in order."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What prediction needs besides the network, for JSON: classes, normalisation, ..."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Task":
        """The task of a state; ValueError if `state` did not return it."""

    @abstractmethod
    def check_network(self, network: nn.Module) -> None:
        """Raise ValueError if the network does not fit the task."""

    @abstractmethod
    def check_same(self, saved: Any) -> None:
        """Raise ValueError if a network trained for `saved` does not fit this task, for example with other classes."""

    def save(self, folder: Path) -> None:
        """Write `task.json` into the folder of the network."""
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"task": self.name, **self.state()}, indent=2)
        write_atomically(folder / STATE, f"{text}\n".encode())

    @classmethod
    def load(cls, folder: Path) -> "Task":
        """Read `task.json` from a folder; OSError or ValueError if it is missing or damaged."""
        state = read_json(folder / STATE)
        if not isinstance(state, dict) or state.pop("task", None) != cls.name:
            raise ValueError(f"it does not describe a task {cls.name}")
        return cls.from_state(state)
