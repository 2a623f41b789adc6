"""Builds the data, network, task and learner of a configuration."""

from typing import NamedTuple

import lightning.pytorch as pl

from lambdanets.data import Data
from lambdanets.runs.complete import complete
from lambdanets.runs.networks import build_network, network_on_meta
from lambdanets.tasks import task_class
from lambdanets.train.config import ConfigError, RunConfig
from lambdanets.train.learner import Learner
from lambdanets.train.schedule import planned_steps
from lambdanets.train.task import Task


class Assembly(NamedTuple):
    config: RunConfig  # complete
    task: Task
    data: Data
    learner: Learner


def assemble(config: RunConfig) -> Assembly:
    """Open the data and build everything else, with weights from the seed of the configuration."""
    kind = task_class(config.task)
    splits = kind.open(config)
    decided = {**kind.network_kwargs(config), **splits.network}
    pl.seed_everything(config.seed, verbose=False)
    network = build_network(config.model, decided)
    config = complete(config, splits, network.config)
    task = kind.create(config, splits)
    try:
        task.check_network(network)
    except ValueError as error:
        raise ConfigError(f"model.name={config.model.name} does not fit the task {task.name}: {error}") from error
    data = task.data(config, splits)
    if config.model.compile:
        network.compile()
    batches = data.train_batches
    steps = planned_steps(batches, config.data.batch_size, config.trainer, config.optim)
    if steps.run < 1:
        raise ConfigError(
            f"the run has no training steps: {batches} batches in an epoch, "
            f"trainer.limit_train_batches={config.trainer.limit_train_batches}"
        )
    return Assembly(config, task, data, Learner(network, task, config.optim, steps))


def completed(config: RunConfig) -> RunConfig:
    """The complete configuration of a run, without building its network."""
    kind = task_class(config.task)
    splits = kind.open(config)
    network = network_on_meta(config.model, {**kind.network_kwargs(config), **splits.network})
    return complete(config, splits, network.config)


def open_for_evaluation(config: RunConfig) -> tuple[Task, Data]:
    """The task and data of a run's configuration, which is complete except for changes of `data.`"""
    kind = task_class(config.task)
    splits = kind.open(config)
    config = kind.complete(config, network_on_meta(config.model, {}).config, splits)
    task = kind.create(config, splits)
    return task, task.data(config, splits)
