"""The configuration of a run, in the sections `model.`, `data.`, `optim.` and `trainer.` Tasks extend them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lambdanets.data import DataConfig
from lambdanets.fields import nearest
from lambdanets.models import list_models


class ConfigError(ValueError):
    """An invalid configuration; the message names the key."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The name of a network, and changes to its configuration, which are further keys of the section."""

    name: str = "lambda_resnet50"
    compile: bool = False  # with torch.compile
    changes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name not in list_models():
            raise ConfigError(f"unknown model.name={self.name}{nearest(self.name, list_models())}")


@dataclass(frozen=True, kw_only=True)
class ImageModelConfig(ModelConfig):
    """The section `model.` of tasks on images."""

    channels_last: bool = True  # the memory format that the kernels and most devices prefer


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """Optimiser, learning-rate schedule and moving averages."""

    optimizer: Literal["sgd", "adamw"] = "sgd"
    lr: float = 0.1  # the largest learning rate, for `lr_batch` items in a step; scales with the batch size
    lr_batch: int | None = 256  # None: `lr` does not scale
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 1e-4  # not on norms, biases and relative tables
    schedule: Literal["cosine", "linear", "step", "constant"] = "cosine"  # after the warm-up, see `schedule.py`
    milestones: tuple[float, ...] = ()  # epochs; schedule=step multiplies by gamma at each
    gamma: float = 0.1
    warmup_epochs: float = 5.0  # linear from 0, for at most a quarter of the run
    warmup_steps: int | None = None  # instead of warmup_epochs
    ema_decay: float = 0.9999  # of the moving average of the weights, see `lambdanets.train.averages`; 0 for none
    bn_decay: float = 0.9999  # of the moving statistics of batch norms

    def __post_init__(self) -> None:
        if self.optimizer not in ("sgd", "adamw"):
            raise ConfigError(f"optim.optimizer must be sgd or adamw, got {self.optimizer}")
        if self.schedule not in ("cosine", "linear", "step", "constant"):
            raise ConfigError(f"optim.schedule must be cosine, linear, step or constant, got {self.schedule}")
        if self.schedule == "step" and not self.milestones:
            raise ConfigError("optim.schedule=step needs optim.milestones, such as [30, 60]")
        if self.milestones != tuple(sorted(self.milestones)) or any(one <= 0 for one in self.milestones):
            raise ConfigError(f"optim.milestones must be epochs in ascending order, got {self.milestones}")
        if self.warmup_steps is not None and self.warmup_steps < 0:
            raise ConfigError(f"optim.warmup_steps must not be negative, got {self.warmup_steps}")
        self.below_one("momentum", "ema_decay", "bn_decay")
        for name in ("lr", "gamma", "weight_decay", "warmup_epochs"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"optim.{name} must be finite and not negative, got {getattr(self, name)}")
        if self.lr_batch is not None and self.lr_batch < 1:
            raise ConfigError(f"optim.lr_batch must be at least 1, got {self.lr_batch}")
        if self.nesterov and not self.momentum:
            raise ConfigError("optim.nesterov needs optim.momentum")

    def below_one(self, *names: str) -> None:
        for name in names:
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"optim.{name} must be at least 0 and below 1, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class SmoothedOptimConfig(OptimConfig):
    """For tasks whose loss is a cross-entropy over classes."""

    label_smoothing: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.below_one("label_smoothing")


# Lightning's names, long and short.
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true", "64-true", "32", "bf16", "16", "64")


@dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """Arguments of Lightning's Trainer, by its names."""

    max_epochs: int = 90
    max_steps: int = -1
    max_time: str | None = None
    limit_train_batches: int | float | None = None
    limit_val_batches: int | float | None = None
    check_val_every_n_epoch: int = 1
    accumulate_grad_batches: int = 1
    gradient_clip_val: float | None = None
    gradient_clip_algorithm: Literal["norm", "value"] = "norm"
    precision: str = "32-true"  # 16-mixed and bf16-mixed on accelerators
    accelerator: str = "auto"
    devices: int | str | tuple[int, ...] = "auto"
    num_nodes: int = 1
    strategy: str = "auto"  # ddp, or fsdp for networks that do not fit on one device
    log_every_n_steps: int = 20
    enable_progress_bar: bool = True
    deterministic: bool = False
    benchmark: bool = False
    detect_anomaly: bool = False
    profiler: Literal["simple", "advanced"] | None = None  # writes a profile into the run folder

    def __post_init__(self) -> None:
        positive = (
            "max_epochs",
            "check_val_every_n_epoch",
            "accumulate_grad_batches",
            "num_nodes",
            "log_every_n_steps",
        )
        for name in positive:
            if getattr(self, name) < 1:
                raise ConfigError(f"trainer.{name} must be at least 1, got {getattr(self, name)}")
        if self.gradient_clip_val is not None and not self.gradient_clip_val > 0:
            raise ConfigError(f"trainer.gradient_clip_val must be above 0, got {self.gradient_clip_val}")
        for name in ("limit_train_batches", "limit_val_batches"):
            if (getattr(self, name) or 0) < 0:
                raise ConfigError(f"trainer.{name} must not be negative, got {getattr(self, name)}")
        if self.precision not in PRECISIONS:
            raise ConfigError(
                f"trainer.precision must be one of {', '.join(PRECISIONS)}, got {self.precision}"
                f"{nearest(self.precision, PRECISIONS)}"
            )
        if self.max_steps < 1 and self.max_steps != -1:
            raise ConfigError(f"trainer.max_steps must be at least 1, or -1 for no limit, got {self.max_steps}")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    task: str = "classification"  # one of `lambdanets.tasks.TASKS`; it selects the classes of `data` and `optim`
    seed: int = 0
    checkpoint_seconds: float = 300.0  # between checkpoints within an epoch; 0: after every step
    model: Any = field(default_factory=ModelConfig)  # `model`, `data` and `optim` are subclasses that the task selects
    data: Any = field(default_factory=DataConfig)
    optim: Any = field(default_factory=OptimConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"seed must be at least 0 and below 2^32, got {self.seed}")
        if not self.checkpoint_seconds >= 0:
            raise ConfigError(f"checkpoint_seconds must be at least 0, got {self.checkpoint_seconds}")


# The default sections; a task can replace them.
SECTIONS: dict[str, type] = {"model": ModelConfig, "data": DataConfig, "optim": OptimConfig, "trainer": TrainerConfig}
