"""Evaluates the network of a run."""

from collections.abc import Callable, Sequence

import torch

from lambdanets.data import DataError
from lambdanets.nn.modes import evaluating
from lambdanets.runs.assembly import open_for_evaluation
from lambdanets.runs.folder import RunError, RunFolder
from lambdanets.runs.restore import described_in, fastest_device, restore
from lambdanets.train.config import ConfigError
from lambdanets.train.task import Report


@torch.no_grad()
def evaluate_run(
    run: RunFolder, changes: Sequence[str] = (), complain: Callable[[str], object] = lambda _: None
) -> Report:
    """Evaluate the network of a run on its validation data; `changes` of `data.` select other data.

    `complain` is called with a message for each damaged checkpoint that was skipped.
    """
    others = [change for change in changes if not change.startswith("data.")]
    if others:
        raise ConfigError(f"only data. can be changed for an evaluation, got {', '.join(others)}")
    config = run.config(changes)
    network, saved, complaints = restore(run)
    for complaint in complaints:
        complain(complaint)
    task, data = open_for_evaluation(config)
    try:
        task.check_same(saved)
    except ValueError as error:
        raise RunError(f"{described_in(run)}: {error}") from error
    network = network.to(fastest_device())
    try:
        with evaluating(network):
            return task.report(network, data.evaluation_loader())
    except DataError:
        raise
    except ValueError as error:  # a network can refuse inputs of another size
        raise RunError(f"{run.path}: {error}") from error
