"""What a task is: everything that is specific to what is learnt. Nothing else in `train` knows it."""

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
    """The figure that a run is judged by."""

    column: str  # of metrics.csv, such as val_accuracy
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
    """A sum, and what to divide it by: the learner does so over all processes and accumulated batches together."""

    total: Tensor
    weight: int | float  # how many images, tokens, ... the sum is over
    parts: Mapping[str, Tensor] = field(default_factory=dict)  # terms of the total, sums too, to be logged

    def detached(self) -> "Loss":
        return Loss(self.total.detach(), self.weight, {name: part.detach() for name, part in self.parts.items()})


@runtime_checkable
class Metrics(Protocol):
    """What was gathered from the examples validated so far: sums, or whole answers by the names of their examples.

    Processes exchange them, so they must be picklable.
    """

    def merge(self, others: Sequence[Any]) -> "Metrics":
        """Those of several processes as one, in the order of their ranks."""

    def figures(self) -> dict[str, float]:
        """By column of metrics.csv, the score among them."""


@runtime_checkable
class Report(Protocol):
    """How a trained network does on the validation data; its `str` is what commands print."""

    @property
    def score(self) -> float: ...

    def figures(self) -> dict[str, Any]:
        """Numbers by name, as JSON can hold them."""

    def draw(self, folder: Path) -> None:
        """Write the pictures of the task into a folder."""


@dataclass(frozen=True)
class Prediction(ABC):
    """The answer for one input, or why there is none."""

    input: str
    error: str | None = None

    @abstractmethod
    def cells(self) -> list[str]:
        """The answer as cells of a table."""

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """The answer and the error."""


class Task(ABC):
    """Data, targets, loss, metrics, report and prediction of what is learnt.

    A task is made in steps, for each needs what the one before found out: `open` the data, build the network with what
    the data decides, `complete` the configuration with both, `create` the task. `load` makes one without the data.

    `open` does not see the network, so whatever cuts the data into items is a key of `data.`, which `network_kwargs`
    passes to the network. What `open` finds out beside the splits, such as classes, goes into a subclass of `Splits`;
    what an evaluation on other data must keep, `complete` writes into the configuration. Tasks are sent to the workers
    that load data, so they hold settings and no large tensors.
    """

    name: ClassVar[str]
    unit: ClassVar[str]  # what speed is counted in: images, tokens, ...
    items: ClassVar[str]  # what the data consists of: images, documents, ...
    score: ClassVar[Score]
    sections: ClassVar[Mapping[str, type]]  # of the configuration, where they differ from `config.SECTIONS`
    decided_by_data: ClassVar[tuple[str, ...]] = ()  # fields of the network, see `Splits.network`
    panels: ClassVar[tuple[Panel, ...]] = ()  # of the curves, beside losses and learning rate
    memory_format: torch.memory_format = torch.contiguous_format  # of the weights
    item_weight: float = 1.0  # about the `Loss.weight` of an item, for the scale of losses in a step of several batches
    pictures: ClassVar[tuple[str, ...]] = ()  # names of the files that a report draws

    @classmethod
    @abstractmethod
    def check(cls, config: RunConfig) -> None:
        """Refuse a configuration that cannot be, without looking at the data."""

    @classmethod
    @abstractmethod
    def open(cls, config: RunConfig) -> Splits:
        """The data; DataError if it cannot be used."""

    @classmethod
    def adapt_recipe(cls, recipe: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
        """A recipe without what changes of other keys make obsolete; both as YAML has them."""
        return recipe

    @classmethod
    def network_kwargs(cls, config: RunConfig) -> dict[str, Any]:
        """Keyword arguments of the network that the section `data.` decides."""
        return {}

    @classmethod
    def complete(cls, config: RunConfig, network: Any, splits: Splits | None) -> RunConfig:
        """With what the network's configuration decides, and the data if it was opened."""
        return config

    @classmethod
    def incomplete(cls, config: RunConfig) -> list[str]:
        """The keys that `complete` sets and that this configuration lacks."""
        return []

    @classmethod
    @abstractmethod
    def create(cls, config: RunConfig, splits: Splits) -> "Task":
        """Of a complete configuration."""

    @abstractmethod
    def train_example(self, read: Any) -> Any:
        """From what an item reads to an example, in a worker; torch's default generator is seeded for it."""

    @abstractmethod
    def val_example(self, read: Any) -> Any:
        """The same for validation and prediction."""

    @abstractmethod
    def collate(self, examples: Sequence[Any]) -> Batch:
        """A batch of examples; of none too, if none of them could be read."""

    @abstractmethod
    def filler(self) -> Batch:
        """A batch whose examples are not valid, which keeps processes in step."""

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
        """Of a training batch, of which every example is valid or has no weight."""

    @abstractmethod
    def forward(self, network: nn.Module, batch: Batch) -> Any:
        """The network on the inputs of a batch, without the targets."""

    @abstractmethod
    def metrics(self) -> Metrics:
        """Without any example so far."""

    @abstractmethod
    def validate(self, network: nn.Module, batch: Batch, metrics: Any) -> None:
        """Add the valid examples of a batch; `network` is the weight average, in eval mode.

        An answer must not depend on the other examples of the batch, because processes share batches.
        """

    @abstractmethod
    def report(self, network: nn.Module, batches: Iterable[Batch]) -> Report:
        """At the end of a run, or when it is evaluated."""

    @abstractmethod
    def predict(self, network: nn.Module, inputs: Sequence[str], *, top: int) -> Iterator[Prediction]:
        """Answers to what a user gives, in order."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What prediction needs beside the network, as JSON can hold it: classes, normalisation, ..."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Task":
        """ValueError if it is not what `state` returns."""

    @abstractmethod
    def check_network(self, network: nn.Module) -> None:
        """ValueError if the network does not fit."""

    @abstractmethod
    def check_same(self, saved: Any) -> None:
        """ValueError if a network that was trained for `saved` has no answers for this task, as with other classes."""

    def save(self, folder: Path) -> None:
        """Write what prediction needs into the folder of the network."""
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"task": self.name, **self.state()}, indent=2)
        write_atomically(folder / STATE, f"{text}\n".encode())

    @classmethod
    def load(cls, folder: Path) -> "Task":
        """From a folder that `save` wrote; OSError or ValueError if it is not there or damaged."""
        state = read_json(folder / STATE)
        if not isinstance(state, dict) or state.pop("task", None) != cls.name:
            raise ValueError(f"it does not describe a task {cls.name}")
        return cls.from_state(state)
