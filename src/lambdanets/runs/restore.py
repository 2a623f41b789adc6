"""The network and the task that a run has saved."""

from pathlib import Path
from typing import Any, NamedTuple

import torch

from lambdanets.files import reason
from lambdanets.models import Network, load_model
from lambdanets.models.fill import any_dtype, fill
from lambdanets.runs import legacy
from lambdanets.runs.folder import RunError, RunFolder, is_there
from lambdanets.runs.networks import network_on_meta
from lambdanets.tasks import task_class
from lambdanets.train import checkpoints
from lambdanets.train.config import ConfigError
from lambdanets.train.learner import averaged_weights
from lambdanets.train.task import STATE, Task


class RestoredRun(NamedTuple):
    network: Network
    task: Task
    complaints: list[str]  # about damaged checkpoints that were passed over


def restore(run: RunFolder) -> RestoredRun:
    """The averaged weights of a finished run, or those of its newest intact checkpoint, and its task."""
    description, task = run.description(), restore_task(run)
    complaints: list[str] = []
    if description.finished is not None and is_there(run.model / "config.json"):
        network = load_model(run.model).float()  # inputs are float32
    else:
        path, state, complaints = checkpoints.newest_intact(run.checkpoints)
        network = network_from(run, path, state)
    try:
        task.check_network(network)
    except ValueError as error:
        raise RunError(f"{described_in(run)}: {error}") from error
    return RestoredRun(network, task, complaints)


def restore_task(run: RunFolder) -> Task:
    """From model/task.json; runs of earlier versions have none."""
    config = run.config()
    kind = task_class(config.task)
    try:
        if is_there(run.model / STATE):
            return kind.load(run.model)
        return kind.from_state(legacy.task_state(config, run.read_description()))
    except OSError as error:
        raise RunError(f"{described_in(run)} cannot be read: {reason(error)}") from error
    except ValueError as error:
        raise RunError(f"{described_in(run)} is damaged: {error}") from error


def described_in(run: RunFolder) -> Path:
    """The file that describes the task."""
    return run.model / STATE if is_there(run.model / STATE) else run.description_file


def described_network(run: RunFolder) -> Network:
    """The network of config.yaml, without memory."""
    model = run.config().model
    try:
        return network_on_meta(model, {})
    except ConfigError as error:
        raise ConfigError(f"{run.config_file}: {error}") from error


def network_from(run: RunFolder, path: Path, state: Any) -> Network:
    """The network that config.yaml describes with the weight average of a checkpoint, in float32."""
    network = described_network(run)
    try:
        fill(network, averaged_weights(state), any_dtype)
    except ValueError as error:
        raise RunError(f"{path} does not hold the network that config.yaml describes: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:  # of what is no state dict
        raise checkpoints.DamagedCheckpointError(f"{path} is no checkpoint of a run: {error}") from error
    return network.float().eval()


def fastest_device() -> torch.device:
    """For evaluation and prediction."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
