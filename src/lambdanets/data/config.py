"""The section `data.` of a configuration. Tasks add their own fields."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The source of items, and the batch size."""

    source: str = ""  # one of the task's sources
    root: str | None = None  # folder, file or shards, depending on the source
    name: str | None = None  # of a data set within the source, such as torchvision's class
    download: bool = False  # download missing data
    samples: int | None = None  # training items in an epoch of a stream whose length is unknown
    holdout: float = 0.1  # fraction of the training items for validation, if there are no others
    limit: int | None = None  # use only this many training items
    batch_size: int = 128  # items in a batch over all devices
    workers: int = 2  # processes that load items; 0 for none

    def __post_init__(self) -> None:
        self.at_least_one("batch_size", "samples", "limit")
        self.not_negative("workers")
        self.fractions("holdout")

    def at_least_one(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"data.{name} must be at least 1, got {value}")

    def not_negative(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) < 0:
                raise ValueError(f"data.{name} must not be negative, got {getattr(self, name)}")

    def fractions(self, *names: str) -> None:
        for name in names:
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"data.{name} must be from 0 to 1, got {getattr(self, name)}")
