"""The folder of a run and its files."""

import csv
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lambdanets.files import read_json, read_text, reason, write_atomically
from lambdanets.runs.configs import read_config, resolve
from lambdanets.runs.description import Description, description_from, with_metrics
from lambdanets.tasks import task_class
from lambdanets.train.config import ConfigError, RunConfig

# What a run writes, in addition to the pictures of its task.
FOLDERS = ("checkpoints", "model", "tensorboard")
FILES = ("config.yaml", "run.json", "metrics.csv", "skipped.csv", "nonfinite.jsonl", ".lock", "curves.png")


class RunError(ValueError):
    """A folder that is not a run, or a run that an operation does not apply to."""


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
        """Whether it has a run.json, even an unreadable one, which raises an error when it is used."""
        return is_there(self.description_file)

    def config(self, changes: Sequence[str] = ()) -> RunConfig:
        """The configuration of the run, with changes."""
        config = read_config(self.config_file)
        if missing := task_class(config.task).incomplete(config):
            raise ConfigError(f"{self.config_file} is not the configuration of a run: it lacks {', '.join(missing)}")
        return resolve(self.config_file, changes) if changes else config

    def description(self) -> Description:
        found = self.read_description()
        try:
            return with_possible_score(description_from(found))
        except ValueError as error:
            raise RunError(f"{self.description_file} is damaged: {error}") from error

    def read_description(self) -> Any:
        """The unchecked content of run.json."""
        try:
            return read_json(self.description_file)
        except FileNotFoundError as error:
            raise RunError(f"{self.path} is not a run: it has no {self.description_file.name}") from error
        except OSError as error:
            raise RunError(f"{self.description_file} cannot be read: {reason(error)}") from error
        except ValueError as error:
            raise RunError(f"{self.description_file} is damaged: {error}") from error

    def progress(self) -> Description:
        """Its description, with the epochs so far if it is not finished."""
        known = self.description()
        if known.finished is not None or not is_there(self.metrics):
            return known
        try:
            return with_possible_score(
                with_metrics(known, read_text(self.metrics), task_class(known.task).score.column)
            )
        except (OSError, UnicodeDecodeError) as error:
            raise RunError(f"{self.metrics} cannot be read: {reason(error)}") from error
        except (ValueError, csv.Error) as error:
            raise RunError(f"{self.metrics} is damaged: {error}") from error

    def describe(self, description: Description) -> None:
        write_atomically(self.description_file, f"{json.dumps(asdict(description), indent=2)}\n".encode())


def with_possible_score(description: Description) -> Description:
    """Return the description; ValueError if its task is unknown or its score impossible."""
    score = task_class(description.task).score
    if score.is_percentage and not 0 <= (description.score or 0) <= 1:
        raise ValueError(f"score must be from 0 to 1, got score={description.score}")
    return description


@contextmanager
def claimed(run: RunFolder, pictures: Sequence[str]) -> Iterator[None]:
    """Lock the folder against other processes until this one ends. `pictures` are the files of the task."""
    refuse_other_files(run.path, (*FILES, *pictures))
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    with (run.path / ".lock").open("a") as file:
        try:
            # The lock belongs to the process, so workers that briefly outlive a killed process do not hold it.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunError(f"{run.path} is being trained by another process; train in another folder") from error
        yield


def refuse_other_files(folder: Path, files: Sequence[str]) -> None:
    """Raise RunError if something else, such as a pipe, is in the place of a file that the run will write."""
    for path in folder.iterdir():
        if path.name in FOLDERS and not path.is_dir():
            raise RunError(f"{path} is not a folder; the run cannot write there")
        if path.name in files and path.exists() and not path.is_file():
            raise RunError(f"{path} is not a regular file; the run cannot write there")


def all_runs(root: Path) -> list[RunFolder]:
    """All runs, oldest first, including those whose run.json is damaged or missing."""
    found = [RunFolder(path) for path in root.iterdir()] if root.is_dir() else []
    return sorted((run for run in found if run.is_run or is_there(run.config_file)), key=age)


def age(run: RunFolder) -> float:
    """The time of its run.json, or 0 if unknown."""
    try:
        return run.description_file.lstat().st_mtime
    except OSError:
        return 0.0


def is_there(path: Path) -> bool:
    """Whether a path exists, even as a broken link or in an unreadable folder; errors are reported when it is used."""
    try:
        os.lstat(path)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def find_run(name: str, root: Path) -> RunFolder:
    """Find a run by its folder, its name, or `latest`."""
    if name == "latest":
        runs = [run for run in all_runs(root) if run.is_run]
        if not runs:
            raise RunError(f"there are no runs in {root}")
        return runs[-1]
    for path in (Path(name), root / name):
        if RunFolder(path).is_run:
            return RunFolder(path)
    raise RunError(f"there is no run {name}, neither as a folder nor in {root}; see lambdanets runs")


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
