"""Lightning's Trainer, configured for a run, and its callbacks."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.profilers import AdvancedProfiler, PassThroughProfiler, SimpleProfiler
from lightning.pytorch.strategies import ParallelStrategy
from rich.console import Console

from lambdanets.data import Data
from lambdanets.train.checkpointing import Checkpointing
from lambdanets.train.checkpoints import HashedCheckpointIO
from lambdanets.train.config import ConfigError, RunConfig
from lambdanets.train.guard import Guard
from lambdanets.train.history import History
from lambdanets.train.norm_statistics import NormStatistics
from lambdanets.train.progress import ProgressBar
from lambdanets.train.random_states import RandomStates
from lambdanets.train.skips import Skips
from lambdanets.train.strategies import make_strategy

PROFILERS = {"simple": SimpleProfiler, "advanced": AdvancedProfiler}


class NoProfiler(PassThroughProfiler):
    """Shares one context, because Lightning enters one around every hook, more than a hundred times a step."""

    nothing = nullcontext()

    def profile(self, action_name: str) -> AbstractContextManager[Any]:  # type: ignore[override]
        return self.nothing


def make_trainer(config: RunConfig, folder: Path, callbacks: Sequence[Callback]) -> Trainer:
    options = asdict(config.trainer) | {"strategy": make_strategy(config.trainer.strategy)}
    options["enable_progress_bar"] = False  # Lightning's own; ours is a callback
    kind = config.trainer.profiler
    options["profiler"] = NoProfiler() if kind is None else PROFILERS[kind](dirpath=folder, filename="profile")
    on_cuda = torch.cuda.is_available() and config.trainer.accelerator in ("auto", "gpu", "cuda")
    try:
        with quiet():
            trainer = Trainer(
                **options,
                callbacks=list(callbacks),
                plugins=[HashedCheckpointIO()],
                logger=TensorBoardLogger(folder, name=None, version="tensorboard", default_hp_metric=False),
                enable_checkpointing=False,
                enable_model_summary=False,
                num_sanity_val_steps=0,
                use_distributed_sampler=False,
                sync_batchnorm=on_cuda,  # not supported on CPUs
                default_root_dir=folder,
            )
            if isinstance(trainer.strategy, ParallelStrategy) and trainer.strategy.cluster_environment is not None:
                # Lightning would check only after the run has started.
                trainer.strategy.cluster_environment.validate_settings(trainer.num_devices, trainer.num_nodes)
    except (TypeError, ValueError, RuntimeError, MisconfigurationException) as error:
        raise ConfigError(f"trainer: {' '.join(str(error).split())}") from error
    if config.data.batch_size % trainer.world_size:
        raise ConfigError(
            f"data.batch_size={config.data.batch_size} is not a multiple of the {trainer.world_size} processes"
        )
    return trainer


def own_callbacks(config: RunConfig, folder: Path, history: History, data: Data, console: Console) -> list[Callback]:
    """Our callbacks, in the order of their calls: `Checkpointing` saves the states of those before it."""
    statistics = NormStatistics(data)
    callbacks = [
        Guard(folder / "nonfinite.jsonl"),
        Skips(folder / "skipped.csv", data.splits, data.items),
        history,
        statistics,
        RandomStates(),
        Checkpointing(folder / "checkpoints", config.checkpoint_seconds),
    ]
    if config.trainer.enable_progress_bar:
        bar = ProgressBar(history, console)
        statistics.tell = bar.describe
        callbacks.append(bar)
    return callbacks


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress Lightning's messages, and warnings about intended behaviour."""
    loggers = {name: logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")}
    levels = {name: logger.level for name, logger in loggers.items()}
    for logger in loggers.values():
        logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*LeafSpec.*deprecated")
            warnings.filterwarnings("ignore", message=".*smaller than the logging interval")
            warnings.filterwarnings("ignore", message=".*your dataloader is not resumable")  # it is, by its position
            warnings.filterwarnings("ignore", message=".*returned a view tensor")  # which is not changed in place
            # For 1x1 weights, whose memory layout is the same for all strides.
            warnings.filterwarnings("ignore", message=".*[Gg]rad strides do not match bucket view strides")
            warnings.filterwarnings("ignore", message=".*sync_dist=True")  # logged values are reduced already
            yield
    finally:
        for name, logger in loggers.items():
            logger.setLevel(levels[name])
