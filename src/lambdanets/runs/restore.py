"""Loads the network and the task of a run."""

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
    complaints: list[str]  # about damaged checkpoints that were skipped


def restore(run: RunFolder) -> RestoredRun:
    """Load the averaged weights of a finished run, or of its newest intact checkpoint, and its task."""
    description, task = run.description(), restore_task(run)
    if task is None:
        raise RunError(f"{run.model / STATE} is missing")
    complaints: list[str] = []
    is_saved = any(is_there(run.model / name) for name in ("config.json", "model.safetensors"))
    if description.finished is not None and is_saved:
        network = load_model(run.model).float()  # inputs are float32
    else:
        path, state, complaints = checkpoints.newest_intact(run.checkpoints)
        network = network_from(run, path, state)
    try:
        task.check_network(network)
    except ValueError as error:
        raise RunError(f"{described_in(run)}: {error}") from error
    return RestoredRun(network, task, complaints)


def restore_task(run: RunFolder) -> Task | None:
    """Load the task from model/task.json, or from the files of earlier versions; None if the run has neither."""
    config, description = run.config(), run.read_description()
    kind = task_class(config.task)
    try:
        if is_there(run.model / STATE):
            return kind.load(run.model)
        return kind.from_state(legacy.task_state(config, description)) if legacy.is_legacy(description) else None
    except OSError as error:
        raise RunError(f"{described_in(run)} cannot be read: {reason(error)}") from error
    except ValueError as error:
        raise RunError(f"{described_in(run)} is damaged: {error}") from error


def described_in(run: RunFolder) -> Path:
    """The file that describes the task."""
    return run.model / STATE if is_there(run.model / STATE) else run.description_file


def described_network(run: RunFolder) -> Network:
    """The network of config.yaml, on the meta device."""
    model = run.config().model
    try:
        return network_on_meta(model, {})
    except ConfigError as error:
        raise ConfigError(f"{run.config_file}: {error}") from error


def network_from(run: RunFolder, path: Path, state: Any) -> Network:
    """The network of config.yaml with the averaged weights of a checkpoint, in float32."""
    network = described_network(run)
    try:
        fill(network, averaged_weights(state), any_dtype)
    except ValueError as error:
        raise RunError(f"{path} does not hold the network that config.yaml describes: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:  # not a state dict
        raise checkpoints.DamagedCheckpointError(f"{path} is not a checkpoint of a run: {error}") from error
    return network.float().eval()


def fastest_device() -> torch.device:
    """The device for evaluation and prediction."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
