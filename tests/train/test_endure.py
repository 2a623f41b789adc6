"""tools/endure.py finds nothing with small counts, and finds what is wrong when something is."""

import random
import sys
from pathlib import Path

import pytest
from damage import example

from lambdanets.train import checkpoints

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
import endure


@pytest.fixture
def folder():
    with endure.workplace() as folder:
        yield folder


@pytest.mark.parametrize(
    ("trial", "count"),
    [("kills", 2), ("saving_kills", 5), ("mutations", 40), ("payloads", 20), ("images", 1000)],
    ids=lambda value: value,
)
def test_endures(folder, monkeypatch, trial, count):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(endure, "list_recipes", lambda: ["digits"])
    ticks = []
    outcome = endure.TRIALS[trial](count, random.Random(trial), folder, lambda: ticks.append(1))
    assert (outcome.failures, outcome.done, len(ticks)) == ([], count, count)


def test_every_recipe_can_be_made_small(folder):
    for recipe in endure.list_recipes():
        config = endure.resolve(recipe, endure.small(recipe, folder))
        assert (config.checkpoint_seconds, config.trainer.max_epochs, config.data.source) == (0, 4, "npz")


def test_unreadable_checkpoints_are_told(folder):
    for step in (1, 2, 3):
        checkpoints.save(example(step, 500_000), checkpoints.path_for(folder, step))
    assert list(endure.unreadable(folder, 3)) == []
    checkpoints.path_for(folder, 3).write_bytes(b"half")
    checkpoints.save({"global_step": 2}, checkpoints.path_for(folder, 2))
    told = list(endure.unreadable(folder, 3))
    assert [line.partition(" ")[0] for line in told] == [str(checkpoints.path_for(folder, step)) for step in (3, 2)] + [
        "step"
    ]


def test_accepted_damage_is_told(folder, monkeypatch):
    monkeypatch.setattr(checkpoints, "load", lambda path: {"global_step": 0})
    outcome = endure.mutate(20, random.Random(0), folder, lambda: None)
    assert len(outcome.failures) >= 20
    assert str(outcome) == f"damaged checkpoints: 20 of 20, {len(outcome.failures)} failed"
