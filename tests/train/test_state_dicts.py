"""Checkpoints of runs record the geometry of tables, whatever strategy wrote them."""

import shutil
from collections import OrderedDict

import pytest
import torch
from torch import nn

from lambdanets import LambdaLayer2d
from lambdanets.runs import train
from lambdanets.runs.folder import RunError, RunFolder
from lambdanets.runs.restore import restore
from lambdanets.train import checkpoints
from lambdanets.train.checkpointing import StoppedError
from lambdanets.train.state_dicts import below
from lambdanets.train.strategies import Sharded, whole_state
from tiny import Stop, tiny

VECTOR = (
    "model.layer=vector",
    "model.h=4",
    "model.k=16",
    "model.layer_options.scope=[3, 5]",
    "model.layer_options.share=2",
)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was stopped after two steps."""
    run = RunFolder(tmp_path_factory.mktemp("run"))
    with pytest.raises(StoppedError):
        train(tiny(*VECTOR), run, callbacks=[Stop(after=2)])
    return run


@pytest.fixture
def edited(stopped, tmp_path):
    """A copy of it with another window in its configuration."""
    run = RunFolder(shutil.copytree(stopped.path, tmp_path / "edited"))
    config = run.config_file.read_text()
    changed = config.replace("[3, 5]", "[5, 3]")
    assert changed != config
    run.config_file.write_text(changed)
    return run


TABLE = r"middle\.(0\.)?relate\.weight was saved with scope=\(3, 5\), but this Vector2d has scope=\(5, 3\)"


def test_a_network_of_another_geometry_than_its_checkpoint_is_refused(edited):
    (checkpoint,) = checkpoints.all_in(edited.checkpoints)
    with pytest.raises(RunError, match=rf"{checkpoint} does not hold .* config.yaml describes: .*{TABLE}"):
        restore(edited)


def test_a_run_of_another_geometry_does_not_resume(edited):
    with pytest.raises(checkpoints.DamagedCheckpointError, match=rf"is not a checkpoint of this run: model\..*{TABLE}"):
        train(edited.config(), edited, resume=True)


def test_a_checkpoint_without_a_record_is_read(edited):
    """As older versions wrote it."""
    (path,) = checkpoints.all_in(edited.checkpoints)
    state = checkpoints.load(path)
    del state["state_dict"]._metadata
    checkpoints.save(state, path)
    network, _, complaints = restore(edited)
    assert complaints == []
    assert all(
        torch.equal(tensor, state["state_dict"][f"average.{name}"]) for name, tensor in network.state_dict().items()
    )


def test_a_stopped_run_is_read_and_resumes(stopped, tmp_path):
    run = RunFolder(shutil.copytree(stopped.path, tmp_path / "copy"))
    assert restore(run).network.config.layer_options["scope"] == (3, 5)
    assert train(run.config(), run, resume=True) is not None


def nested(scope):
    return nn.ModuleDict({"average": nn.Sequential(LambdaLayer2d(8, scope=scope)), "averages": nn.Linear(2, 2)})


def test_the_state_dict_of_a_submodule():
    module = nested((3, 5))
    state, expected = below(module.state_dict(), "average"), module["average"].state_dict()
    assert state.keys() == expected.keys()
    assert state._metadata == expected._metadata
    assert not hasattr(below(dict(module.state_dict()), "average"), "_metadata")


def test_shards_keep_the_record():
    strategy, state = Sharded(), whole_state(nested((3, 5)))
    assert type(state) is OrderedDict
    strategy._lightning_module = nested((5, 3))
    with pytest.raises(RuntimeError, match=r"average\.0\.table\.weight was saved with scope=\(3, 5\)"):
        strategy.load_model_state_dict({"state_dict": state})
    strategy._lightning_module = other = nested((3, 5))
    strategy.load_model_state_dict({"state_dict": state})
    assert all(torch.equal(tensor, state[name]) for name, tensor in other.state_dict().items())
    strategy.load_model_state_dict({"state_dict": dict(state)})  # of an older version
