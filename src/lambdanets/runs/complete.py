"""Complete configurations: every value is explicit, so a run can be repeated even if defaults change."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from lambdanets.data import Splits
from lambdanets.runs.networks import network_on_meta
from lambdanets.tasks import task_class
from lambdanets.train.config import RunConfig

# Steps in an epoch if the data set is smaller than the batch of a recipe.
STEPS_OF_SMALL_SET = 4


def planned(config: RunConfig) -> RunConfig:
    """Fill in every field of the network except those that the data determines, without opening the data."""
    task = task_class(config.task)
    task.check(config)
    network = network_on_meta(config.model, task.network_kwargs(config)).config
    fields = {
        name: value
        for name, value in asdict(network).items()
        if name not in task.decided_by_data or name in config.model.changes
    }
    return task.complete(replace(config, model=replace(config.model, changes=fields)), network, None)


def complete(config: RunConfig, splits: Splits, network: Any) -> RunConfig:
    """Fill in everything that the data and the network's configuration determine."""
    data = replace(
        config.data,
        root=None if config.data.root is None else absolute(config.data.root),
        batch_size=fitting_batch(config.data.batch_size, splits.train_items),
    )
    whole = replace(config, model=replace(config.model, changes=asdict(network)), data=data)
    return task_class(config.task).complete(whole, network, splits)


def fitting_batch(batch_size: int, items: int | None) -> int:
    """The batch size; if there are fewer items, a smaller power of two, which processes can share.

    >>> fitting_batch(64, 64), fitting_batch(64, 60), fitting_batch(64, 3), fitting_batch(64, None)
    (64, 8, 2, 64)
    """
    if items is None or items >= batch_size:
        return batch_size
    power_of_two = 1 << (items // STEPS_OF_SMALL_SET).bit_length() >> 1
    return max(power_of_two, min(items, 2))  # batch norm needs two


def absolute(root: str) -> str:
    """An absolute path; addresses with :// are returned unchanged."""
    return root if "://" in root else str(Path(root).expanduser().absolute())
