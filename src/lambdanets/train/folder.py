"""What a run leaves behind, all in one folder."""

import csv
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lambdanets.fields import brief
from lambdanets.files import read_json, read_text, reason, write_atomically
from lambdanets.models import Network, load_model
from lambdanets.models.fill import any_dtype, fill
from lambdanets.train import checkpoints
from lambdanets.train.config import ConfigError, RunConfig
from lambdanets.train.description import Description, description_from, with_metrics
from lambdanets.train.networks import on_meta
from lambdanets.train.resolve import read_config, resolve
from lambdanets.train.state_dicts import below

# What a run writes.
FOLDERS = ("checkpoints", "model", "tensorboard")
FILES = (
    *("config.yaml", "run.json", "metrics.csv", "skipped.csv", "nonfinite.jsonl", ".lock"),
    *("curves.png", "confusion.png", "mistakes.png"),
)


class RunError(ValueError):
    """A folder that is no run, or not one that this can be done with."""


@dataclass(frozen=True)
class RunFolder:
    path: Path

    @property
    def config_file(self) -> Path:
        return self.path / "config.yaml"

    @property
    def description_file(self) -> Path:
        return self.path / "run.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.csv"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def is_run(self) -> bool:
        """Whether it has a run.json, even one that cannot be read: then that is told where it is used."""
        return is_there(self.description_file)

    def config(self, changes: Sequence[str] = ()) -> RunConfig:
        """What the run was trained with, with changes to it."""
        config = read_config(self.config_file)
        if None in (config.data.image_size, config.data.mean, config.data.std):
            raise ConfigError(f"{self.config_file} is not that of a run: it lacks data.image_size, mean or std")
        return resolve(self.config_file, changes) if changes else config

    def description(self) -> Description:
        try:
            return description_from(read_json(self.description_file))
        except FileNotFoundError as error:
            raise RunError(f"{self.path} is no run: it has no {self.description_file.name}") from error
        except OSError as error:
            raise RunError(f"{self.description_file} cannot be read: {reason(error)}") from error
        except ValueError as error:
            raise RunError(f"{self.description_file} is damaged: {error}") from error

    def progress(self) -> Description:
        """What is known of a run at any moment: of one that is not finished, the epochs that it has written down."""
        known = self.description()
        if known.finished is not None or not is_there(self.metrics):
            return known
        try:
            return with_metrics(known, read_text(self.metrics))
        except (OSError, UnicodeDecodeError) as error:
            raise RunError(f"{self.metrics} cannot be read: {reason(error)}") from error
        except (ValueError, csv.Error) as error:
            raise RunError(f"{self.metrics} is damaged: {error}") from error

    def describe(self, description: Description) -> None:
        write_atomically(self.description_file, f"{json.dumps(asdict(description), indent=2)}\n".encode())

    def network(self) -> tuple[Network, list[str]]:
        """The averaged weights that a finished run has saved, or those of its newest checkpoint, and what was amiss."""
        description = self.description()
        complaints: list[str] = []
        if self.model.is_dir() and description.finished is not None:
            network = load_model(self.model).float()  # as images are prepared
        else:
            path, state, complaints = checkpoints.newest_intact(self.checkpoints)
            network = averaged(self.network_on_meta(), state, path)
        if network.num_classes != len(description.classes):
            raise RunError(
                f"{self.description_file} names {len(description.classes)} classes, "
                f"but the network has {network.num_classes} outputs"
            )
        self.refuse_other_images(network)
        return network, complaints

    def refuse_other_images(self, network: Network) -> None:
        """Images are prepared as config.yaml says, and must be such as the network takes."""
        data, takes = self.config().data, network.config
        for name in ("mean", "std"):
            if len(getattr(data, name)) != takes.in_chans:
                raise RunError(
                    f"{self.config_file}: data.{name} is {brief(getattr(data, name))}, "
                    f"but the network takes images with {takes.in_chans} channels"
                )
        if data.image_size != takes.image_size:
            raise RunError(
                f"{self.config_file}: data.image_size is {data.image_size}, but the network takes {takes.image_size}"
            )

    def network_on_meta(self) -> Network:
        """The network that config.yaml describes."""
        try:
            return on_meta(self.config().model)
        except ConfigError as error:
            raise ConfigError(f"{self.config_file}: {error}") from error

    def refuse_other_classes(self, classes: Sequence[str]) -> None:
        """A network that was trained with some classes has no answer for others."""
        known = self.description().classes
        if len(known) != len(classes):
            raise RunError(f"{self.description_file} names {len(known)} classes, the data has {len(classes)}")
        for number, (old, new) in enumerate(zip(known, classes, strict=True)):
            if old != new:
                raise RunError(
                    f"class {number} is {brief(old)} in {self.description_file}, and {brief(new)} in the data"
                )


def averaged(network: Network, state: Mapping[str, Any], path: Path) -> Network:
    """A network from the meta device with the averages of a checkpoint, in float32 whatever it was trained in."""
    try:
        weights = below(state["state_dict"], "average")
        for name, tensor in weights.items():
            weights[name] = tensor.contiguous()
        fill(network, weights, any_dtype)
    except ValueError as error:
        raise RunError(f"{path} does not hold the network that config.yaml describes: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:  # of what is no state dict
        raise checkpoints.DamagedCheckpointError(f"{path} is no checkpoint of a run: {error}") from error
    return network.float().eval()


@contextmanager
def claimed(run: RunFolder) -> Iterator[None]:
    """No other process trains in the folder meanwhile; a process that ends in any way gives it up."""
    refuse_other_files(run.path)
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    with (run.path / ".lock").open("a") as file:
        try:
            # By process: workers that outlive a killed process for a moment do not keep it.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunError(f"{run.path} is being trained by another process; train in another folder") from error
        yield


def refuse_other_files(folder: Path) -> None:
    """Something else where a run writes, such as a pipe in the place of a file, would block it or end it later."""
    for path in folder.iterdir():
        if path.name in FOLDERS and not path.is_dir():
            raise RunError(f"{path} is not a folder; the run cannot write there")
        if path.name in FILES and path.exists() and not path.is_file():
            raise RunError(f"{path} is not a regular file; the run cannot write there")


def all_runs(root: Path) -> list[RunFolder]:
    """Oldest first, with those whose run.json is damaged or missing."""
    found = [RunFolder(path) for path in root.iterdir()] if root.is_dir() else []
    return sorted((run for run in found if run.is_run or is_there(run.config_file)), key=age)


def age(run: RunFolder) -> float:
    """When its run.json was written; 0 where that cannot be known."""
    try:
        return run.description_file.lstat().st_mtime
    except OSError:
        return 0.0


def is_there(path: Path) -> bool:
    """Of any kind, even a link to nothing, or in a folder that must not be read: what that means is told later."""
    try:
        os.lstat(path)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def find_run(name: str, root: Path) -> RunFolder:
    """By its folder, its name, or as the latest."""
    if name == "latest":
        runs = [run for run in all_runs(root) if run.is_run]
        if not runs:
            raise RunError(f"there are no runs in {root}")
        return runs[-1]
    for path in (Path(name), root / name):
        if RunFolder(path).is_run:
            return RunFolder(path)
    raise RunError(f"there is no run {name}, neither here nor in {root}; see lambdanets runs")


def free_name(root: Path, wanted: str) -> Path:
    """
    >>> free_name(Path("nowhere"), "digits")
    PosixPath('nowhere/digits')
    """
    path, number = root / wanted, 1
    while path.exists():
        number += 1
        path = root / f"{wanted}-{number}"
    return path
