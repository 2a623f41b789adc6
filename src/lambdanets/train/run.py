"""A run from its configuration to what it leaves in its folder."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch import Callback
from rich.console import Console
from torch import nn

from lambdanets.data import Opened, open_data
from lambdanets.files import write_atomically
from lambdanets.models import create_model
from lambdanets.train import checkpoints
from lambdanets.train.assemble import RunData, complete, make_classifier, with_preparation
from lambdanets.train.config import WHEREABOUTS, ConfigError, RunConfig, changed_keys
from lambdanets.train.description import Description
from lambdanets.train.evaluate import Evaluation, evaluate
from lambdanets.train.folder import RunFolder, claimed, is_there
from lambdanets.train.history import History, Row
from lambdanets.train.keeper import StoppedError
from lambdanets.train.pictures import draw_confusion, draw_curves, draw_mistakes
from lambdanets.train.resolve import as_yaml
from lambdanets.train.restored import Restored
from lambdanets.train.strategies import ended_together, whole_state
from lambdanets.train.trainer import make_trainer, own_callbacks, quiet

# What a run that goes on may do differently: where it runs and how long, but not what a step is.
MAY_CHANGE = ("trainer.", *WHEREABOUTS)
RULES = tuple(
    f"trainer.{key}"
    for key in (
        "accumulate_grad_batches",
        "gradient_clip_val",
        "gradient_clip_algorithm",
        "limit_train_batches",
        "precision",
    )
)
PLAIN: dict[str, Any] = {"highlight": False, "soft_wrap": True, "markup": False}  # texts with names that others chose


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
    data, requested = open_data(config.data), config
    config = complete(config, data)
    data = replace(data, config=config.data)
    pl.seed_everything(config.seed, verbose=False)
    classifier = make_classifier(config, data)
    history = History(run.metrics, config.trainer.log_every_n_steps)
    restored = Restored()
    own = own_callbacks(config, run, history, data, console)
    trainer = make_trainer(config, run, [*own, *callbacks, restored])
    console.quiet = console.quiet or not trainer.is_global_zero
    trainer.precision_plugin.convert_module(classifier)  # Lightning would, but after a checkpoint has been read into it
    if resume:
        refuse_other_training(run, config)
        run.refuse_other_classes(data.classes)
    start = checkpoint_to_go_on_from(run, console) if resume else None
    description = Description(
        model=config.model.name,
        data=config.data.name or config.data.source,
        parameters=sum(p.numel() for p in classifier.model.parameters()),
        classes=data.classes,
        started=run.description().started if resume else now(),
    )
    if trainer.is_global_zero:
        for line in as_yaml(config).splitlines():
            console.print(line, **PLAIN)
        if config.data.batch_size != requested.data.batch_size:
            console.print(
                f"data.batch_size={requested.data.batch_size} is more than the {data.train_images} training images: "
                f"{config.data.batch_size} is used, for several steps in an epoch",
                **PLAIN,
            )
        run.path.mkdir(parents=True, exist_ok=True)
    try:
        with claimed(run) if trainer.is_global_zero else nullcontext(), quiet(), ended_together(trainer):
            if trainer.is_global_zero:
                write_atomically(run.config_file, as_yaml(config).encode())
                run.describe(description)
            with restored.or_damaged(start):
                trainer.fit(classifier, datamodule=RunData(config, data), ckpt_path=start, weights_only=True)
    except StoppedError:
        if trainer.is_global_zero:
            raise
        return None  # all stop together, and the first says so
    weights = whole_state(classifier.average)
    if not trainer.is_global_zero:
        return None
    network = create_model(config.model.name, **config.model.changes)
    network.load_state_dict(weights)
    network.save_pretrained(run.model)
    # As validation has it, so that the last row of metrics.csv is what this finds.
    network.to(classifier.device, next(classifier.average.parameters()).dtype)
    network.load_state_dict(weights)  # not rounded to what is saved
    with trainer.precision_plugin.forward_context():
        evaluation = evaluate_and_draw(config, run, data, network, history.rows)
    description = replace(description, finished=now(), accuracy=evaluation.accuracy, **totals(history.rows))
    run.describe(description)
    return Result(description, evaluation)


def refuse_other_training(run: RunFolder, config: RunConfig) -> None:
    """What a run has learnt belongs to its network, data and rules; where and how long it runs may change."""
    if not is_there(run.config_file):
        return
    every = changed_keys(run.config(), config)
    changed = [key for key in every if not key.startswith(MAY_CHANGE) or key in RULES]
    if changed:
        raise ConfigError(
            f"{run.path} goes on as it began, so {', '.join(changed)} cannot change; "
            f"{', '.join(MAY_CHANGE)} can, but for {', '.join(RULES)}, and a new run can have anything"
        )


def checkpoint_to_go_on_from(run: RunFolder, console: Console) -> Path | None:
    """None if the run was ended before it had any."""
    if not checkpoints.all_in(run.checkpoints):
        console.print(f"{run.path} has no checkpoint yet: it begins again", **PLAIN)
        return None
    path, _, complaints = checkpoints.newest_intact(run.checkpoints)
    for complaint in complaints:
        console.print(f"not used: {complaint}", **PLAIN)
    console.print(f"going on from {path}", **PLAIN)
    return path


def evaluate_and_draw(
    config: RunConfig, run: RunFolder, data: Opened, network: nn.Module, rows: list[Row]
) -> Evaluation:
    assert config.data.image_size is not None
    loader = data.evaluation_loader(config.data.image_size)
    evaluation = evaluate(with_preparation(config, network), loader, data.classes)
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
