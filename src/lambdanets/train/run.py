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
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from rich.console import Console
from torch import nn

from lambdanets.data import Opened, open_data
from lambdanets.files import write_atomically
from lambdanets.models import create_model
from lambdanets.train import checkpoints
from lambdanets.train.assemble import RunData, complete, make_classifier, make_prepare
from lambdanets.train.config import RunConfig
from lambdanets.train.evaluate import Evaluation, evaluate
from lambdanets.train.folder import Description, RunFolder
from lambdanets.train.guard import Guard
from lambdanets.train.history import History, Row
from lambdanets.train.keeper import Files, Keeper, RandomStates
from lambdanets.train.pictures import draw_confusion, draw_curves, draw_mistakes
from lambdanets.train.progress import ProgressBar
from lambdanets.train.resolve import as_yaml
from lambdanets.train.skips import Skips
from lambdanets.train.strategies import make_strategy, whole_weights


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
    start = checkpoint_to_go_on_from(run, console) if resume else None
    history = History(run.metrics, config.trainer.log_every_n_steps)
    keeper = Keeper(run.checkpoints, config.checkpoint_seconds)
    own = [Guard(run.path / "nonfinite.jsonl"), Skips(run.path / "skipped.csv"), history, RandomStates(), keeper]
    if config.trainer.enable_progress_bar:
        own.append(ProgressBar(history, console))
    trainer = make_trainer(config, run, [*own, *callbacks])
    description = Description(
        model=config.model.name,
        data=config.data.name or config.data.source,
        parameters=sum(p.numel() for p in classifier.model.parameters()),
        classes=data.classes,
        started=now(),
    )
    if trainer.is_global_zero:
        console.print(as_yaml(config), highlight=False, soft_wrap=True)
        run.path.mkdir(parents=True, exist_ok=True)
        write_atomically(run.config_file, as_yaml(config).encode())
        run.describe(description)
    with quiet():
        trainer.fit(classifier, datamodule=RunData(config, data), ckpt_path=start, weights_only=True)
    weights = whole_weights(classifier.average)
    if not trainer.is_global_zero:
        return None
    network = create_model(config.model.name, **config.model.changes)
    network.load_state_dict(weights)
    network.save_pretrained(run.model)
    evaluation = evaluate_and_draw(config, run, data, network, history.rows)
    description = replace(description, finished=now(), accuracy=evaluation.accuracy, **totals(history.rows))
    run.describe(description)
    return Result(description, evaluation)


def checkpoint_to_go_on_from(run: RunFolder, console: Console) -> Path:
    path, _, complaints = checkpoints.newest_intact(run.checkpoints)
    for complaint in complaints:
        console.print(f"not used: {complaint}", highlight=False, soft_wrap=True)
    console.print(f"going on from {path}", highlight=False, soft_wrap=True)
    return path


def make_trainer(config: RunConfig, run: RunFolder, callbacks: Sequence[Callback]) -> Trainer:
    options = asdict(config.trainer) | {"strategy": make_strategy(config.trainer.strategy)}
    options["enable_progress_bar"] = False  # Lightning's; ours is a callback
    with quiet():
        return Trainer(
            **options,
            callbacks=list(callbacks),
            plugins=[Files()],
            logger=TensorBoardLogger(run.path, name=None, version="tensorboard", default_hp_metric=False),
            enable_checkpointing=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
            sync_batchnorm=torch.cuda.is_available(),  # the back end of CPUs cannot
            default_root_dir=run.path,
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Lightning greets, and warns of what is meant to be so."""
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*LeafSpec.*deprecated")
            warnings.filterwarnings("ignore", message=".*smaller than the logging interval")
            warnings.filterwarnings("ignore", message=".*your dataloader is not resumable")  # it is, by its place
            yield
    finally:
        logger.setLevel(level)


def evaluate_and_draw(
    config: RunConfig, run: RunFolder, data: Opened, network: nn.Module, rows: list[Row]
) -> Evaluation:
    assert config.data.image_size is not None
    loader = data.evaluation_loader(config.data.image_size)
    evaluation = evaluate(nn.Sequential(make_prepare(config), network), loader, data.classes)
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
