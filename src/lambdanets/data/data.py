"""The data of a run: both splits, and the functions of the task that make batches."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lambdanets.data import indexed, streamed
from lambdanets.data.batches import Batch, Collate, ToExample
from lambdanets.data.batching import Batching
from lambdanets.data.indexed import SplitLoader
from lambdanets.data.loader import Loader, LoaderOptions, Position, Share
from lambdanets.data.splits import Split, Stream, first, length_of
from lambdanets.data.streamed import StreamEvaluationLoader, StreamLoader, StreamSampleLoader


@dataclass(frozen=True)
class Splits:
    """The opened splits of a source, and keyword arguments for the network."""

    train: Split | Stream
    val: Split | Stream
    network: dict[str, Any] = field(default_factory=dict)  # keyword arguments of the network
    spare: int = 0  # training items that can be missing, because no class would be without any

    @property
    def items(self) -> int | None:
        """The number of items in both splits; None if unknown."""
        train, val = self.train_items, length_of(self.val)
        return None if train is None or val is None else train + val

    @property
    def train_items(self) -> int | None:
        return length_of(self.train)


@dataclass(frozen=True, kw_only=True)
class Data:
    """Makes loaders for the splits. They are created once the number of processes is known."""

    splits: Splits
    train_example: ToExample  # may draw random numbers; see `seeds`
    val_example: ToExample
    collate: Collate
    filler: Callable[[], Batch]  # a batch without valid examples
    batch_size: int
    workers: int = 0
    train_batching: Batching | None = None  # a fixed number of items by default
    items: str = "items"  # what they are called in messages
    sample_batch_size: int = 64  # of `sample_loader`, whatever the batch size of training is

    def options(self, to_example: ToExample, **changes: Any) -> LoaderOptions:
        known = {"batch_size": self.batch_size, "workers": self.workers, "items": self.items}
        return LoaderOptions(to_example=to_example, collate=self.collate, **{**known, **changes})

    def training_loader(
        self, *, seed: int = 0, share: Share | None = None, position: Callable[[], Position] = Position
    ) -> SplitLoader | StreamLoader:
        options = self.options(self.train_example, seed=seed, share=share or Share(), position=position)
        if isinstance(self.splits.train, Stream):
            return StreamLoader(self.splits.train, options)
        return SplitLoader(self.splits.train, options, shuffle=True, batching=self.train_batching)

    def evaluation_loader(self, *, share: Share | None = None) -> Loader:
        """The validation items, in order."""
        options = self.options(self.val_example, share=share or Share())
        if isinstance(self.splits.val, Stream):
            return StreamEvaluationLoader(self.splits.val, options)
        return SplitLoader(self.splits.val, options, shuffle=False)

    def sample_loader(self, items: int) -> Loader:
        """Up to so many training items as evaluation sees them, the same in every pass, process and run."""
        options = self.options(self.val_example, batch_size=self.sample_batch_size)
        if isinstance(self.splits.train, Stream):
            return StreamSampleLoader(self.splits.train, options, items)
        return SplitLoader(first(self.splits.train, items), options, shuffle=False)

    @property
    def train_batches(self) -> int:
        """The number of batches in an epoch, over all processes."""
        train, options = self.splits.train, self.options(self.train_example)
        if isinstance(train, Stream):
            return streamed.count_batches(train, options)
        return indexed.count_batches(train, options, self.train_batching, shuffle=True)
