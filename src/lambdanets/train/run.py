"""A run from its configuration to what it leaves in its folder."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.strategies import ParallelStrategy
from rich.console import Console
from torch import nn

from lambdanets.data import Opened, open_data
from lambdanets.files import write_atomically
from lambdanets.models import create_model
from lambdanets.train import checkpoints
from lambdanets.train.assemble import RunData, complete, make_classifier, make_prepare
from lambdanets.train.config import ConfigError, RunConfig
from lambdanets.train.evaluate import Evaluation, evaluate
from lambdanets.train.folder import Description, RunFolder
from lambdanets.train.guard import Guard
from lambdanets.train.history import History, Row
from lambdanets.train.keeper import Files, Keeper, RandomStates, StoppedError
from lambdanets.train.pictures import draw_confusion, draw_curves, draw_mistakes
from lambdanets.train.progress import ProgressBar
from lambdanets.train.resolve import as_yaml
from lambdanets.train.skips import Skips
from lambdanets.train.strategies import ended_together, make_strategy, whole


@dataclass(frozen=True)
class Result:
    description: Description
    evaluation: Evaluation


def train(
    config: RunConfig,
    run: RunFolder,
    *,
    resume: bool = False,
    console: Console | None = None,
    callbacks: Sequence[Callback] = (),
) -> Result | None:
    """Train, evaluate, draw; with `resume` go on from the newest intact checkpoint of the folder.

    What a finished run has in its folder: config.yaml, run.json, metrics.csv, TensorBoard's events, checkpoints/,
    model/ (see `ResNet.from_pretrained`), curves.png, confusion.png, mistakes.png. `callbacks` are Lightning's.
    Of several processes the first returns the result.
    """
    console = console or Console(stderr=True, quiet=True)
    data = open_data(config.data)
    config = complete(config, data)
    pl.seed_everything(config.seed, verbose=False)
    classifier = make_classifier(config, data)
    history = History(run.metrics, config.trainer.log_every_n_steps)
    trainer = make_trainer(config, run, [*own_callbacks(config, run, history, console), *callbacks])
    console.quiet = console.quiet or not trainer.is_global_zero
    trainer.precision_plugin.convert_module(classifier)  # Lightning would, but after a checkpoint has been read into it
    start = checkpoint_to_go_on_from(run, console) if resume else None
    description = Description(
        model=config.model.name,
        data=config.data.name or config.data.source,
        parameters=sum(p.numel() for p in classifier.model.parameters()),
        classes=data.classes,
        started=run.description().started if resume else now(),
    )
    if trainer.is_global_zero:
        console.print(as_yaml(config), highlight=False, soft_wrap=True)
        run.path.mkdir(parents=True, exist_ok=True)
        write_atomically(run.config_file, as_yaml(config).encode())
        run.describe(description)
    try:
        with quiet(), ended_together(trainer):
            trainer.fit(classifier, datamodule=RunData(config, data), ckpt_path=start, weights_only=True)
    except StoppedError:
        if trainer.is_global_zero:
            raise
        return None  # all stop together, and the first says so
    weights = whole(classifier.average.state_dict())
    if not trainer.is_global_zero:
        return None
    network = create_model(config.model.name, **config.model.changes)
    network.load_state_dict(weights)
    network.save_pretrained(run.model)
    evaluation = evaluate_and_draw(config, run, data, network, classifier.device, history.rows)
    description = replace(description, finished=now(), accuracy=evaluation.accuracy, **totals(history.rows))
    run.describe(description)
    return Result(description, evaluation)


def own_callbacks(config: RunConfig, run: RunFolder, history: History, console: Console) -> list[Callback]:
    """In the order in which they must be asked: the keeper saves what those before it know."""
    guard, skips = Guard(run.path / "nonfinite.jsonl"), Skips(run.path / "skipped.csv")
    keeper = Keeper(run.checkpoints, config.checkpoint_seconds)
    bar = [ProgressBar(history, console)] if config.trainer.enable_progress_bar else []
    return [guard, skips, history, RandomStates(), keeper, *bar]


def checkpoint_to_go_on_from(run: RunFolder, console: Console) -> Path | None:
    """None if the run was ended before it had any."""
    if not checkpoints.all_in(run.checkpoints):
        console.print(f"{run.path} has no checkpoint yet: it begins again", highlight=False, soft_wrap=True)
        return None
    path, _, complaints = checkpoints.newest_intact(run.checkpoints)
    for complaint in complaints:
        console.print(f"not used: {complaint}", highlight=False, soft_wrap=True)
    console.print(f"going on from {path}", highlight=False, soft_wrap=True)
    return path


def make_trainer(config: RunConfig, run: RunFolder, callbacks: Sequence[Callback]) -> Trainer:
    options = asdict(config.trainer) | {"strategy": make_strategy(config.trainer.strategy)}
    options["enable_progress_bar"] = False  # Lightning's; ours is a callback
    on_cuda = torch.cuda.is_available() and config.trainer.accelerator in ("auto", "gpu", "cuda")
    try:
        with quiet():
            trainer = Trainer(
                **options,
                callbacks=list(callbacks),
                plugins=[Files()],
                logger=TensorBoardLogger(run.path, name=None, version="tensorboard", default_hp_metric=False),
                enable_checkpointing=False,
                enable_model_summary=False,
                num_sanity_val_steps=0,
                use_distributed_sampler=False,
                sync_batchnorm=on_cuda,  # the back end of CPUs cannot
                default_root_dir=run.path,
            )
            if isinstance(trainer.strategy, ParallelStrategy) and trainer.strategy.cluster_environment is not None:
                # Lightning would do that, too, but as part of the run.
                trainer.strategy.cluster_environment.validate_settings(trainer.num_devices, trainer.num_nodes)
    except (ValueError, RuntimeError, MisconfigurationException) as error:
        raise ConfigError(f"trainer: {' '.join(str(error).split())}") from error
    if config.data.batch_size % trainer.world_size:
        raise ConfigError(
            f"data.batch_size={config.data.batch_size} is no multiple of the {trainer.world_size} processes"
        )
    return trainer


@contextmanager
def quiet() -> Iterator[None]:
    """Lightning greets, and warns of what is meant to be so."""
    loggers = {name: logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")}
    levels = {name: logger.level for name, logger in loggers.items()}
    for logger in loggers.values():
        logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*LeafSpec.*deprecated")
            warnings.filterwarnings("ignore", message=".*smaller than the logging interval")
            warnings.filterwarnings("ignore", message=".*your dataloader is not resumable")  # it is, by its place
            warnings.filterwarnings("ignore", message=".*returned a view tensor")  # and nobody changes it in place
            warnings.filterwarnings("ignore", message=".*sync_dist=True")  # what is logged is of all processes already
            yield
    finally:
        for name, logger in loggers.items():
            logger.setLevel(levels[name])


def evaluate_and_draw(
    config: RunConfig, run: RunFolder, data: Opened, network: nn.Module, device: torch.device, rows: list[Row]
) -> Evaluation:
    assert config.data.image_size is not None
    loader = data.evaluation_loader(config.data.image_size)
    network = nn.Sequential(make_prepare(config), network).to(device)
    evaluation = evaluate(network, loader, data.classes)
    draw_confusion(evaluation.confusion, data.classes, run.path / "confusion.png")
    draw_mistakes(evaluation.worst, run.path / "mistakes.png")
    if rows:
        draw_curves(rows, run.path / "curves.png")
    return evaluation


def totals(rows: list[Row]) -> dict[str, Any]:
    """Of all epochs."""
    seconds = sum(row["seconds"] for row in rows)
    images = sum(row["seconds"] * row["images_per_second"] for row in rows)
    waiting = sum(row["seconds"] * row["waiting_share"] for row in rows)
    return {
        "epochs": len(rows),
        "seconds": round(seconds, 1),
        "images_per_second": round(images / max(seconds, 1e-9), 1),
        "waiting_share": round(waiting / max(seconds, 1e-9), 4),
    }


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
