"""The runs of a comparison, each in its folder. Finished runs are reused, stopped runs are resumed."""

from dataclasses import replace
from pathlib import Path

from lambdanets.bench.compare.budget import Budget
from lambdanets.bench.compare.entries import Entry
from lambdanets.models import ResNetConfig
from lambdanets.runs import RunFolder, resolve, train
from lambdanets.runs.assembly import completed
from lambdanets.runs.description import Description
from lambdanets.runs.parsing import changed_keys
from lambdanets.runs.run import WHEREABOUTS
from lambdanets.train.config import ConfigError, RunConfig
from lambdanets.train.guard import NonFiniteLossError


class OtherRunError(ValueError):
    """A folder of the comparison has a run with other settings."""


def configuration(entry: Entry, budget: Budget, seed: int, more: list[str]) -> RunConfig:
    """The configuration of an entry. `more` are changes for all; options of lambda layers apply to these only."""
    if any(change.startswith("model.layer=") for change in more):
        raise ConfigError("model.layer differs between entries: select them with --only")
    config = resolve(budget.recipe, [*budget.settings(seed), *more])
    foreign = ResNetConfig.excluded_by(entry.changes)
    shared = {key: value for key, value in config.model.changes.items() if key not in foreign}
    return replace(config, model=replace(config.model, changes={**shared, **entry.changes}))


def folder_of(root: Path, entry: Entry, seed: int) -> RunFolder:
    """
    >>> folder_of(Path("runs"), Entry("no batch norm"), 1).path
    PosixPath('runs/no-batch-norm-seed-1')
    """
    return RunFolder(root / f"{entry.name.replace(' ', '-')}-seed-{seed}")


def finished(run: RunFolder, config: RunConfig) -> Description | None:
    """The description of a finished run; OtherRunError if its settings differ."""
    if not run.is_run:
        return None
    if {*changed_keys(run.config(), completed(config))} - {*WHEREABOUTS}:
        raise OtherRunError(f"{run.path} has a run with other settings; choose another --out, or remove it")
    description = run.description()
    return None if description.finished is None else description


def trained(run: RunFolder, config: RunConfig) -> Description:
    """Train or resume a run to its end; it has no accuracy if the loss diverged."""
    done = finished(run, config)
    if done is not None:
        return done
    try:
        result = train(config, run, resume=run.is_run)
    except NonFiniteLossError:
        return run.description()
    assert result is not None  # None only in other processes
    return result.description
