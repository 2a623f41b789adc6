"""Any value in the place of any field of a folder's files: it is taken, or refused by an error that names the file."""

import copy
import json
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from compare import SWEEP
from lambdanets.models import create_model, load_model
from lambdanets.models.checkpoint import CheckpointError, sha256_of_config
from lambdanets.runs import RunError, RunFolder
from lambdanets.runs.configs import as_yaml
from lambdanets.runs.description import Description
from lambdanets.runs.parsing import to_tree
from lambdanets.runs.restore import described_network, restore
from lambdanets.train.config import ConfigError
from tiny import tiny

pytestmark = pytest.mark.unchecked

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-5, 1100)
    | st.sampled_from([-(10**9), 2**31, 2**63, 10**30, 10**400])
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["\x1b[31m", "\u202e", "\ud800", "[red]", "x" * 10_000, "1e999", "[[", "{[]:1}", "nan", "None"])
)
VALUES = st.recursive(
    SCALARS, lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=3), each, max_size=3)
)
MANY = settings(max_examples=1000 if SWEEP else 60)


def paths(tree, before=()):
    """To every field, also inside others."""
    for key, value in tree.items():
        yield (*before, key)
        if isinstance(value, dict):
            yield from paths(value, (*before, key))


def damaged(tree, path, value):
    """Another value there, or none if it is `...`."""
    tree = copy.deepcopy(tree)
    inner = tree
    for key in path[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return tree


@contextmanager
def taken_or_refused(error, file):
    """Any other error fails the test."""
    said = str(file)
    try:
        yield
    except error as raised:
        said = str(raised)
    assert str(file) in said


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    config = tiny("data.image_size=8", "data.mean=[0.5]", "data.std=[0.5]", "model.num_classes=3", "model.in_chans=1")
    (folder / "config.yaml").write_text(as_yaml(config))
    create_model(config.model.name, **config.model.changes).save_pretrained(folder / "model")
    return folder


RUN = json.loads(json.dumps(asdict(Description(model="m", data="d", parameters=5, started="s", score=0.5))))


@MANY
@given(path=st.sampled_from(list(paths(RUN))), value=VALUES | st.just(...))
def test_run_json(folder, path, value):
    run = RunFolder(folder)
    run.description_file.write_text(json.dumps(damaged(RUN, path, value)))
    with taken_or_refused(RunError, run.description_file):
        found = run.progress()
        assert isinstance(found.model, str)
        assert found.task == "classification"
        assert 0 <= found.seconds < float("inf")


STATE = {
    "task": "classification",
    "classes": ["a", "b", "c"],
    "image_size": 8,
    "mean": [0.5],
    "std": [0.5],
    "crop": "none",
    "channels_last": True,
}


@MANY
@given(path=st.sampled_from(list(paths(STATE))), value=VALUES | st.just(...))
def test_task_json(folder, path, value):
    run, file = RunFolder(folder), folder / "model" / "task.json"
    file.write_text(json.dumps(damaged(STATE, path, value)))
    run.description_file.write_text(json.dumps({**RUN, "finished": "now"}))
    with taken_or_refused(RunError, file):
        network, task, _ = restore(run)
        assert len(task.classes) == network.num_classes == 3


CONFIG = to_tree(tiny("data.image_size=8", "data.mean=[0.5]", "data.std=[0.5]"))
MODEL = asdict(create_model("lambda_resnet14_small", width=4, h=2, k=4, image_size=8).config)


@MANY
@given(path=st.sampled_from(list(paths({**CONFIG, "model": CONFIG["model"] | MODEL}))), value=VALUES | st.just(...))
def test_config_yaml(tmp_path_factory, path, value):
    run = RunFolder(tmp_path_factory.getbasetemp())
    tree = damaged({**CONFIG, "model": CONFIG["model"] | MODEL}, path, value)
    run.config_file.write_text(yaml.safe_dump(tree))
    with taken_or_refused(ConfigError, run.config_file):
        described_network(run)


@MANY
@given(data=st.data())
def test_config_json(folder, data):
    file = folder / "model" / "config.json"
    whole = file.read_text()
    description = json.loads(whole)
    path = data.draw(st.sampled_from(list(paths(description))))
    hurt = damaged(description, path, data.draw(VALUES | st.just(...)))
    if isinstance(hurt.get("config"), dict) and path[0] == "config":
        hurt["config_sha256"] = sha256_of_config(hurt["config"])  # by somebody who knows
    file.write_text(json.dumps(hurt))
    try:
        with taken_or_refused(CheckpointError, folder / "model"):
            load_model(Path(folder) / "model")
    finally:
        file.write_text(whole)


HEADER = "epoch,step,val_accuracy,images_per_second,seconds\n"


@MANY
@given(text=st.text() | st.lists(SCALARS, max_size=8).map(lambda cells: HEADER + ",".join(map(str, cells))))
def test_metrics_csv(tmp_path_factory, text):
    run = RunFolder(tmp_path_factory.getbasetemp())
    run.description_file.write_text(json.dumps({**RUN, "finished": None}))
    run.metrics.write_bytes(text.encode(errors="surrogatepass"))
    with taken_or_refused(RunError, run.metrics):
        assert run.progress().epochs >= 0
