"""What a run leaves behind, all in one folder."""

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lambdanets.files import write_atomically
from lambdanets.models import Network, load_model
from lambdanets.train import checkpoints
from lambdanets.train.config import RunConfig, from_tree
from lambdanets.train.resolve import read_yaml


class RunError(ValueError):
    """A folder that is no run, or not one that this can be done with."""


@dataclass(frozen=True, kw_only=True)
class Description:
    """run.json: what `lambdanets runs` shows and prediction needs, without the data and without a network."""

    model: str
    data: str
    parameters: int
    classes: tuple[str, ...]
    started: str
    finished: str | None = None
    epochs: int = 0
    accuracy: float | None = None
    seconds: float = 0.0  # of training
    images_per_second: float | None = None
    waiting_share: float | None = None


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
        return self.description_file.is_file()

    def config(self) -> RunConfig:
        return from_tree(read_yaml(self.config_file))

    def description(self) -> Description:
        try:
            found = json.loads(self.description_file.read_text())
            return Description(**{**found, "classes": tuple(found["classes"])})
        except FileNotFoundError as error:
            raise RunError(f"{self.path} is no run: it has no {self.description_file.name}") from error
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise RunError(f"{self.description_file} is damaged: {error}") from error

    def progress(self) -> Description:
        """What is known of a run at any moment: of one that is not finished, the epochs that it has written down."""
        known = self.description()
        if known.finished is not None or not self.metrics.is_file():
            return known
        with self.metrics.open(newline="") as file:
            rows = list(csv.DictReader(file))
        accuracies = [float(row["val_accuracy"]) for row in rows if row.get("val_accuracy")]
        return replace(
            known,
            epochs=len(rows),
            accuracy=accuracies[-1] if accuracies else None,
            seconds=sum(float(row["seconds"]) for row in rows),
            images_per_second=float(rows[-1]["images_per_second"]) if rows else None,
        )

    def describe(self, description: Description) -> None:
        write_atomically(self.description_file, f"{json.dumps(asdict(description), indent=2)}\n".encode())

    def network(self) -> tuple[Network, list[str]]:
        """The averaged weights that a finished run has saved, or those of its newest checkpoint, and what was amiss."""
        from lambdanets.models import create_model

        if self.model.is_dir() and self.description().finished is not None:
            return load_model(self.model), []
        _, state, complaints = checkpoints.newest_intact(self.checkpoints)
        config = self.config()
        network = create_model(config.model.name, **config.model.changes)
        prefix = "average."
        weights = {name.removeprefix(prefix): t for name, t in state["state_dict"].items() if name.startswith(prefix)}
        network.load_state_dict(weights)
        return network.eval(), complaints


@contextmanager
def claimed(run: RunFolder) -> Iterator[None]:
    """No other process trains in the folder meanwhile; a process that ends in any way gives it up."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    with (run.path / ".lock").open("w") as file:
        try:
            # By process: workers that outlive a killed process for a moment do not keep it.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunError(f"{run.path} is being trained by another process; train in another folder") from error
        yield


def all_runs(root: Path) -> Iterator[RunFolder]:
    """Oldest first."""
    found = [RunFolder(path) for path in root.iterdir()] if root.is_dir() else []
    yield from sorted((run for run in found if run.is_run), key=lambda run: run.description_file.stat().st_mtime)


def find_run(name: str, root: Path) -> RunFolder:
    """By its folder, its name, or as the latest."""
    if name == "latest":
        runs = list(all_runs(root))
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
