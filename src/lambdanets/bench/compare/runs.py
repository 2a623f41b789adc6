"""The runs of a comparison, each in its folder; those that are finished are read, those that were stopped go on."""

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
    """A folder of the comparison has a run of other settings."""


def configuration(entry: Entry, budget: Budget, seed: int, more: list[str]) -> RunConfig:
    """`more` are changes that all entries share, such as where the data are; what is of lambda layers, theirs share."""
    if any(change.startswith("model.layer=") for change in more):
        raise ConfigError("model.layer is what entries differ in: choose them with --only")
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
    """What a run has to say, if it is at its end; one of other settings is no run of this comparison."""
    if not run.is_run:
        return None
    if {*changed_keys(run.config(), completed(config))} - {*WHEREABOUTS}:
        raise OtherRunError(f"{run.path} has a run of other settings; compare with another --out, or remove it")
    description = run.description()
    return None if description.finished is None else description


def trained(run: RunFolder, config: RunConfig) -> Description:
    """From wherever it was to its end; without an accuracy if the loss went astray."""
    done = finished(run, config)
    if done is not None:
        return done
    try:
        result = train(config, run, resume=run.is_run)
    except NonFiniteLossError:
        return run.description()
    assert result is not None  # only further processes have none
    return result.description
