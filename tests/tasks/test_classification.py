"""The classification task on its own: batches, loss and metrics as sums, what it saves."""

import copy
import json
import pickle

import pytest
import torch
from torch import nn

from lambdanets import create_model
from lambdanets.data.images import LabelledImage
from lambdanets.runs.parsing import from_tree
from lambdanets.tasks import TASKS, task_class
from lambdanets.tasks.classification.metrics import Accuracy
from lambdanets.tasks.classification.task import Classification, ClassificationState
from lambdanets.train.config import ConfigError
from lambdanets.train.task import Task

STATE = ClassificationState(
    classes=("a", "b", "c"), image_size=5, mean=(0.4,), std=(0.2,), crop="none", channels_last=False
)


def task(**optim) -> Classification:
    return Classification(STATE, from_tree({"optim": optim}))


def batch_of(task: Classification, labels: list[int], valid: list[bool] | None = None):
    images = torch.randint(256, (len(labels), 1, 5, 5), dtype=torch.uint8)
    batch = task.collate([task.val_example(LabelledImage(i, n)) for i, n in zip(images, labels, strict=True)])
    batch.names = [str(number) for number in range(len(labels))]
    batch.valid = torch.tensor([True] * len(labels) if valid is None else valid)
    return batch


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(25, 3))


@pytest.mark.parametrize("name", TASKS)
def test_every_task_says_what_it_is(name):
    kind = task_class(name)
    assert issubclass(kind, Task)
    assert kind.name == name
    assert kind.score.column.startswith("val_")


def test_the_loss_is_a_sum_over_images():
    mine, model = task(label_smoothing=0.1), network()
    batch = batch_of(mine, [0, 1, 2, 1])
    loss = mine.loss(model, batch)
    images = (batch.inputs.images.float() / 255 - 0.4) / 0.2
    expected = nn.functional.cross_entropy(model(images), batch.inputs.labels, label_smoothing=0.1)
    torch.testing.assert_close(loss.total / loss.weight, expected)
    assert loss.weight == 4


def test_invalid_examples_count_for_nothing():
    mine, model = task(), network()
    batch = batch_of(mine, [0, 1, 2], valid=[True, False, True])
    metrics, alone = mine.metrics(), mine.metrics()
    mine.validate(model, batch, metrics)
    for number in (0, 2):
        one = mine.collate([mine.val_example(LabelledImage(batch.inputs.images[number], number))])
        one.valid = torch.tensor([True])
        mine.validate(model, one, alone)
    assert metrics.images == 2
    assert metrics.figures() == pytest.approx(alone.figures())
    mine.validate(model, mine.filler(), metrics)
    assert metrics.images == 2
    report = mine.report(model, [batch, mine.filler()])
    assert (report.images, int(report.confusion.sum())) == (2, 2)


def test_metrics_of_processes_add_up():
    parts = [Accuracy(9, images=2, loss=1.0, correct=1, among_top=2), Accuracy(9, images=3, loss=2.0, correct=3)]
    merged = parts[0].merge(parts)
    assert merged == Accuracy(9, images=5, loss=3.0, correct=4, among_top=2)


def test_a_batch_of_nothing_has_its_shape():
    empty = task().collate([])
    assert empty.inputs.images.shape == (0, 1, 5, 5)
    assert empty.counts == []


def test_what_is_saved_is_what_is_loaded(tmp_path):
    mine = task()
    mine.save(tmp_path)
    loaded = Classification.load(tmp_path)
    assert loaded.settings == mine.settings
    assert json.loads((tmp_path / "task.json").read_text())["task"] == "classification"
    assert pickle.loads(pickle.dumps(mine)).settings == mine.settings  # for workers that are started anew
    mine.check_same(loaded)
    (tmp_path / "task.json").write_text("{}")
    with pytest.raises(ValueError, match="does not describe a task classification"):
        Classification.load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": ("a", "b")}, "the run has 3 classes, the data has 2"),
        ({"classes": ("a", "b", "d")}, "class 2 is 'c' in the run, and 'd' in the data"),
        ({"mean": (0.5,) * 3, "std": (0.5,) * 3}, "the run takes images with 1 channels, the data has 3"),
    ],
)
def test_other_data_is_refused(changes, message):
    other = Classification(ClassificationState(**{**STATE.__dict__, **changes}))
    with pytest.raises(ValueError, match=message):
        other.check_same(copy.copy(task()))


def test_other_networks_are_refused():
    small = {"width": 4, "h": 2, "k": 4}
    fits = create_model("lambda_resnet14_small", num_classes=3, in_chans=1, image_size=5, **small)
    task().check_network(fits)
    for changes, message in (
        ({"num_classes": 4}, "it names 3 classes, but the network has 4 outputs"),
        ({"in_chans": 3}, "but the network takes images with 3 channels"),
        ({"image_size": 8}, "image_size is 5, but the network takes 8"),
    ):
        options = {"num_classes": 3, "in_chans": 1, "image_size": 5, **small, **changes}
        with pytest.raises(ValueError, match=message):
            task().check_network(create_model("lambda_resnet14_small", **options))


def test_sections_are_those_of_the_task():
    assert from_tree({"optim": {"label_smoothing": 0.2}}).optim.label_smoothing == 0.2
    with pytest.raises(ConfigError, match=r"unknown key data\.tokens"):
        from_tree({"data": {"tokens": 5}})
    with pytest.raises(ConfigError, match="task must be the name of a task, got 5"):
        from_tree({"task": 5})
