"""Trains a network and writes the results into the run folder."""

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from rich.console import Console
from torch import nn

from lambdanets.files import write_atomically
from lambdanets.models import Network
from lambdanets.models.fill import any_dtype, fill
from lambdanets.nn.modes import evaluating
from lambdanets.runs.assembly import Assembly, assemble
from lambdanets.runs.configs import as_yaml
from lambdanets.runs.description import Description
from lambdanets.runs.folder import RunError, RunFolder, claimed, is_there
from lambdanets.runs.networks import network_on_meta
from lambdanets.runs.parsing import changed_keys
from lambdanets.runs.restore import described_in, restore_task
from lambdanets.train import checkpoints
from lambdanets.train.checkpointing import StoppedError
from lambdanets.train.config import ConfigError, RunConfig
from lambdanets.train.curves import draw_curves
from lambdanets.train.datamodule import DataModule
from lambdanets.train.first_step import FirstStep
from lambdanets.train.history import History
from lambdanets.train.strategies import ended_together, whole_state
from lambdanets.train.task import Report, Task
from lambdanets.train.trainer import make_trainer, own_callbacks, quiet

# Keys that do not affect the result of a run.
WHEREABOUTS = ("checkpoint_seconds", "data.root", "data.workers", "data.download")
# Keys that a resumed run may change: where and how long it runs, but not what a step does.
MAY_CHANGE = ("trainer.", *WHEREABOUTS)
FIXED = tuple(
    f"trainer.{key}"
    for key in (
        "accumulate_grad_batches",
        "gradient_clip_val",
        "gradient_clip_algorithm",
        "limit_train_batches",
        "precision",
    )
)
PLAIN: dict[str, Any] = {"highlight": False, "soft_wrap": True, "markup": False}  # for text with untrusted names


@dataclass(frozen=True)
class Result:
    description: Description
    report: Report


def train(
    config: RunConfig,
    run: RunFolder,
    *,
    resume: bool = False,
    console: Console | None = None,
    callbacks: Sequence[Callback] = (),
) -> Result | None:
    """Train, evaluate and draw; with `resume`, start from the newest intact checkpoint of the folder.

    A finished run has config.yaml, run.json, metrics.csv, tensorboard/, checkpoints/, model/ (the network and
    task.json), curves.png and the pictures of its task. `callbacks` are additional Lightning callbacks. Of several
    processes, only the first returns the result.
    """
    console = console or Console(stderr=True, quiet=True)
    made = assemble(config)
    history = History(run.metrics, made.config.trainer.log_every_n_steps, made.task.unit)
    first_step = FirstStep()
    own = own_callbacks(made.config, run.path, history, made.data, console)
    trainer = make_trainer(made.config, run.path, [*own, *callbacks, first_step])
    console.quiet = console.quiet or not trainer.is_global_zero
    # Lightning would do this only after it has loaded a checkpoint.
    trainer.precision_plugin.convert_module(made.learner)
    description = describe(made, started=run.description().started if resume else now())
    start = checkpoint_to_resume(run, made, console) if resume else None
    if trainer.is_global_zero:
        announce(made, requested=config, console=console)
        run.path.mkdir(parents=True, exist_ok=True)
    try:
        claim = claimed(run, made.task.pictures) if trainer.is_global_zero else nullcontext()
        with claim, quiet(), ended_together(trainer):
            if trainer.is_global_zero:
                write_atomically(run.config_file, as_yaml(made.config).encode())
                made.task.save(run.model)
                run.describe(description)
            with first_step.or_damaged(start):
                module = DataModule(made.data, made.config.seed)
                trainer.fit(made.learner, datamodule=module, ckpt_path=start, weights_only=True)
    except StoppedError:
        if trainer.is_global_zero:
            raise
        return None  # all processes stop, and the first reports it
    weights = whole_state(made.learner.average)
    if not trainer.is_global_zero:
        return None
    network = network_of(made, weights)
    save_network(network, run.model)
    report = evaluate(trainer, made, network)
    draw(run.path, report, made.task, history)
    score = report.score if math.isfinite(report.score) else None
    description = replace(description, finished=now(), score=score, **history.totals())
    run.describe(description)
    return Result(description, report)


def describe(made: Assembly, started: str) -> Description:
    config = made.config
    return Description(
        task=config.task,
        model=config.model.name,
        data=config.data.name or config.data.source,
        parameters=sum(p.numel() for p in made.learner.model.parameters()),
        started=started,
        unit=made.task.unit,
    )


def announce(made: Assembly, requested: RunConfig, console: Console) -> None:
    for line in as_yaml(made.config).splitlines():
        console.print(line, **PLAIN)
    if made.config.data.batch_size != requested.data.batch_size:
        console.print(
            f"data.batch_size={requested.data.batch_size} is more than the {made.data.splits.train_items} training "
            f"{made.task.items}: using {made.config.data.batch_size}, for several steps in an epoch",
            **PLAIN,
        )


def checkpoint_to_resume(run: RunFolder, made: Assembly, console: Console) -> Path | None:
    """The newest intact checkpoint; None if the run has no checkpoint yet."""
    refuse_other_training(run, made.config)
    try:
        saved = restore_task(run)
        if saved is not None:  # or the model folder is lost, and written again
            made.task.check_same(saved)
    except RunError:
        raise
    except ValueError as error:
        raise RunError(f"{described_in(run)}: {error}") from error
    if not checkpoints.all_in(run.checkpoints):
        console.print(f"{run.path} has no checkpoint yet: starting again", **PLAIN)
        return None
    path, _, complaints = checkpoints.newest_intact(run.checkpoints)
    for complaint in complaints:
        console.print(f"skipped: {complaint}", **PLAIN)
    console.print(f"resuming from {path}", **PLAIN)
    return path


def refuse_other_training(run: RunFolder, config: RunConfig) -> None:
    """Raise ConfigError if the network, data or training rules of a resumed run changed."""
    if not is_there(run.config_file):
        return
    every = changed_keys(run.config(), config)
    changed = [key for key in every if not key.startswith(MAY_CHANGE) or key in FIXED]
    if changed:
        raise ConfigError(
            f"{', '.join(changed)} cannot change when {run.path} is resumed; only {', '.join(MAY_CHANGE)} can, "
            f"except {', '.join(FIXED)}; start a new run instead"
        )


def network_of(made: Assembly, weights: Mapping[str, Any]) -> Network:
    """A separate network with these weights, in the memory format of training."""
    network = network_on_meta(made.config.model, {})
    fill(network, weights, any_dtype)
    network.to(memory_format=made.task.memory_format)  # type: ignore[call-overload]
    return network


def save_network(network: Network, folder: Path) -> None:
    """Save the network in float32."""
    is_float32 = next(network.parameters()).dtype == torch.float32
    (network if is_float32 else deepcopy(network).float()).save_pretrained(folder)


@torch.no_grad()
def evaluate(trainer: Trainer, made: Assembly, network: nn.Module) -> Report:
    """Evaluate as in validation, so that the last row of metrics.csv has the same figures."""
    with trainer.precision_plugin.forward_context(), evaluating(network):
        return made.task.report(network, made.data.evaluation_loader())


def draw(folder: Path, report: Report, task: Task, history: History) -> None:
    report.draw(folder)
    if history.rows:
        draw_curves(history.rows, task.panels, folder / "curves.png")


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
