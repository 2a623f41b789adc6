"""Everything that determines a run, in sections: `model.`, `data.`, `optim.`, `trainer.`"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from lambdanets.data import DataConfig
from lambdanets.fields import brief, hints_of, nearest, read
from lambdanets.models import list_models
from lambdanets.models.registry import find_config


class ConfigError(ValueError):
    """A configuration that cannot be: the message names the key."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A network by name with changes to its row, which are further keys of the section."""

    name: str = "lambda_resnet50"
    channels_last: bool = True  # the memory format that the kernels and most devices prefer
    compile: bool = False  # with torch.compile
    changes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name not in list_models():
            raise ConfigError(f"there is no model.name={self.name}{nearest(self.name, list_models())}")


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """How weights move."""

    optimizer: Literal["sgd", "adamw"] = "sgd"
    lr: float = 0.1  # at the top, for `lr_batch` images in a step: other batches scale it
    lr_batch: int | None = 256  # None: `lr` as it is
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 1e-4  # not on norms, biases and relative tables
    warmup_epochs: float = 5.0  # linear from 0, for a quarter of the run at most, then a cosine to 0
    label_smoothing: float = 0.1
    ema_decay: float = 0.9999  # of the moving average of the weights, see `lambdanets.train.averages`; 0 for none
    bn_decay: float = 0.9999  # of the moving statistics of batch norms

    def __post_init__(self) -> None:
        if self.optimizer not in ("sgd", "adamw"):
            raise ConfigError(f"optim.optimizer must be sgd or adamw, got {self.optimizer}")
        for name in ("momentum", "label_smoothing", "ema_decay", "bn_decay"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"optim.{name} must be at least 0 and below 1, got {getattr(self, name)}")
        for name in ("lr", "weight_decay", "warmup_epochs"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"optim.{name} must be a number that is not negative, got {getattr(self, name)}")
        if self.lr_batch is not None and self.lr_batch < 1:
            raise ConfigError(f"optim.lr_batch must be at least 1, got {self.lr_batch}")
        if self.nesterov and not self.momentum:
            raise ConfigError("optim.nesterov needs optim.momentum")


# Lightning's, with its short names.
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
    strategy: str = "auto"  # ddp, or fsdp for networks that one device does not hold
    log_every_n_steps: int = 20
    enable_progress_bar: bool = True
    deterministic: bool = False
    benchmark: bool = False
    detect_anomaly: bool = False
    profiler: Literal["simple", "advanced"] | None = None  # writes where the time went into the folder of the run

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
    seed: int = 0
    checkpoint_seconds: float = 300.0  # between checkpoints within an epoch; 0: after every step
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"seed must be at least 0 and below 2^32, got {self.seed}")
        if not self.checkpoint_seconds >= 0:
            raise ConfigError(f"checkpoint_seconds must be at least 0, got {self.checkpoint_seconds}")


SECTIONS = {"model": ModelConfig, "data": DataConfig, "optim": OptimConfig, "trainer": TrainerConfig}
Tree = Mapping[str, Any]


def from_tree(tree: Tree) -> RunConfig:
    """A configuration from what YAML says; what is not said has its default.

    >>> from_tree({"optim": {"lr": "1e-2"}, "model": {"name": "lambda_resnet26", "k": 8}}).model.changes
    {'k': 8}
    """
    values: dict[str, Any] = {}
    for name, value in tree.items():
        if name in SECTIONS:
            if not isinstance(value, Mapping):
                raise ConfigError(f"{name} is a section of keys, got {brief(value)}")
            values[name] = section(name, value)
        else:
            values[name] = one_value(name, value, hints_of(RunConfig), "")
    config: RunConfig = build(RunConfig, values)
    return config


# Two runs that differ in these alone are the same.
WHEREABOUTS = ("checkpoint_seconds", "data.root", "data.workers", "data.download")


def changed_keys(old: RunConfig, new: RunConfig) -> list[str]:
    """The keys in which two configurations differ.

    >>> changed_keys(RunConfig(), RunConfig(seed=1, optim=OptimConfig(lr=1.0)))
    ['seed', 'optim.lr']
    """
    found = []
    before, after = to_tree(old), to_tree(new)
    for name, value in after.items():
        if name in SECTIONS:
            found += [f"{name}.{key}" for key in {**before[name], **value} if before[name].get(key) != value.get(key)]
        elif before[name] != value:
            found.append(name)
    return found


def section(name: str, tree: Tree) -> Any:
    its_class = SECTIONS[name]
    hints = hints_of(its_class)
    if its_class is not ModelConfig:
        return build(its_class, {key: one_value(key, value, hints, f"{name}.") for key, value in tree.items()})
    hints.pop("changes")
    row = find_config(str(tree.get("name"))) or find_config(ModelConfig.name)
    network = hints_of(type(row))
    values = {key: one_value(key, value, hints | network, f"{name}.") for key, value in tree.items()}
    own = {key: value for key, value in values.items() if key in hints}
    return build(its_class, own | {"changes": {key: value for key, value in values.items() if key in network}})


def build(its_class: Any, values: dict[str, Any]) -> Any:
    try:
        return its_class(**values)
    except ConfigError:
        raise
    except ValueError as error:  # of sections that other rooms have
        raise ConfigError(str(error)) from error


def one_value(key: str, value: Any, hints: Mapping[str, Any], prefix: str) -> Any:
    if key not in hints:
        raise ConfigError(f"there is no key {prefix}{key}{nearest(str(key), hints, prefix) or elsewhere(key)}")
    try:
        return read(value, hints[key])
    except TypeError as error:
        raise ConfigError(f"{prefix}{key} {error}") from error


def elsewhere(key: str) -> str:
    """
    >>> elsewhere("batch_size")
    '; did you mean data.batch_size?'
    """
    sections = [name for name, its_class in SECTIONS.items() if key in hints_of(its_class)]
    return f"; did you mean {sections[0]}.{key}?" if sections else ""


def to_tree(config: RunConfig) -> dict[str, Any]:
    """All of a configuration as YAML can say it; `from_tree` makes the same of it."""
    tree = asdict(config)
    tree["model"] |= tree["model"].pop("changes")
    return {key: plain(value) for key, value in tree.items()}


def plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    return list(value) if isinstance(value, tuple) else value
