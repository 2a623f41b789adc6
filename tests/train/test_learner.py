"""The learner knows nothing of images: units, named scores, and losses that are sums over weights."""

import csv

import pytest
import torch
from lightning.pytorch import Trainer
from sequences_task import FitLine
from torch import nn

from lambdanets.data import Data, DataConfig, Splits
from lambdanets.train import strategies
from lambdanets.train.config import OptimConfig, RunConfig
from lambdanets.train.datamodule import DataModule
from lambdanets.train.history import History, Sums, sums_from
from lambdanets.train.learner import Learner
from lambdanets.train.schedule import Steps

SGD = OptimConfig(lr=0.01, lr_batch=None, momentum=0.0, weight_decay=0.0, schedule="constant", ema_decay=0.0)


def learner_of(task: FitLine, items: int, steps: int = 100) -> Learner:
    torch.manual_seed(0)
    return Learner(nn.Linear(1, 1), task, SGD, Steps(epoch=steps, run=steps, warmup=0, items=items))


def trainer(folder, accumulate: int = 1, callbacks=(), **options) -> Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    options = {"max_epochs": 1, "accelerator": "cpu", "logger": False, "use_distributed_sampler": False, **options}
    return Trainer(
        accumulate_grad_batches=accumulate, callbacks=list(callbacks), default_root_dir=folder, **quiet, **options
    )


def data_of(task: FitLine, splits: Splits, batch_size: int) -> Data:
    return task.data(RunConfig(data=DataConfig(batch_size=batch_size, workers=0)), splits)


def sequences(count: int) -> Splits:
    return FitLine.open(RunConfig(data=DataConfig(limit=count)))


def gradient_of_all(learner: Learner, data: Data) -> list[torch.Tensor]:
    """Of the summed loss of all batches, divided by their summed weight."""
    losses = [learner.task.loss(learner.model, batch) for batch in data.training_loader()]
    total, weight = sum(loss.total for loss in losses), sum(loss.weight for loss in losses)
    return list(torch.autograd.grad(total / weight, list(learner.model.parameters())))


@pytest.mark.parametrize("accumulate", [1, 2, 5])
def test_a_step_divides_the_summed_loss_by_the_summed_weight(tmp_path, accumulate):
    """Batches have different weights, and the last of five has no full group of two."""
    task = FitLine()
    splits = sequences(20)
    data = data_of(task, splits, 4)
    learner = learner_of(task, items=4 * accumulate)
    before = [p.detach().clone() for p in learner.model.parameters()]
    if accumulate == 5:
        expected = [p - 0.01 * g for p, g in zip(before, gradient_of_all(learner, data), strict=True)]
        trainer(tmp_path, 5).fit(learner, DataModule(data, seed=0))
    else:
        expected = by_hand(learner, data, accumulate)
        learner.model.load_state_dict(dict(zip(("weight", "bias"), before, strict=True)))
        trainer(tmp_path, accumulate).fit(learner, DataModule(data, seed=0))
    for found, wanted in zip(learner.model.parameters(), expected, strict=True):
        torch.testing.assert_close(found.detach(), wanted, rtol=1e-5, atol=1e-6)


def by_hand(learner: Learner, data: Data, accumulate: int) -> list[torch.Tensor]:
    batches, parameters = list(data.training_loader()), list(learner.model.parameters())
    for first in range(0, len(batches), accumulate):
        losses = [learner.task.loss(learner.model, batch) for batch in batches[first : first + accumulate]]
        mean = sum(loss.total for loss in losses) / sum(loss.weight for loss in losses)
        for parameter, gradient in zip(parameters, torch.autograd.grad(mean, parameters), strict=True):
            parameter.data -= 0.01 * gradient
    return [p.detach().clone() for p in parameters]


def test_history_counts_units_and_weighs_losses(tmp_path):
    task = FitLine()
    splits = sequences(20)
    learner = learner_of(task, items=4)
    learner.optim = OptimConfig(lr=0.0)
    data = data_of(task, splits, 4)
    losses = [task.loss(learner.model, batch) for batch in data.training_loader()]
    history = History(tmp_path / "metrics.csv", every=100, unit=task.unit)
    trainer(tmp_path, callbacks=[history]).fit(learner, DataModule(data, seed=0))
    with (tmp_path / "metrics.csv").open() as file:
        (row,) = csv.DictReader(file)
    numbers = sum(loss.weight for loss in losses)
    assert numbers == 4 * (1 + 2 + 3 + 4 + 5)
    assert float(row["train_loss"]) == pytest.approx(
        sum(float(loss.total.detach()) for loss in losses) / numbers, rel=1e-6
    )
    assert float(row["train_largest"]) > 0
    assert float(row["numbers_per_second"]) > 0
    assert float(row["val_error"]) == learner.figures["val_error"]
    assert sorted(map(int, learner.validated.names)) == list(range(11))


def test_sums_of_older_checkpoints():
    old = {"images": 96, "batches": 3, "loss": 6.0, "training": 2.0, "waiting": 0.5}
    sums = sums_from(old)
    assert (sums.units, sums.losses()["train_loss"], sums.training) == (96, 2.0, 2.0)


def test_batches_by_length_have_the_same_number_every_epoch():
    splits = sequences(37)
    data = FitLine().by_length(splits, budget=12, batch_size=4)
    epochs = [[batch.names for batch in data.training_loader(seed=seed)] for seed in range(3)]
    assert {len(epoch) for epoch in epochs} == {data.train_batches}
    assert epochs[0] != epochs[1]
    for epoch in epochs:
        assert sorted(int(name) for batch in epoch for name in batch) == list(range(37))
        for batch in epoch:
            assert len(batch) * max(1 + int(name) % 5 for name in batch) <= 12


def test_parts_of_the_loss_may_differ_between_processes(monkeypatch):
    """A process whose losses were all NaN or Inf, or that was just resumed, has none."""

    def gather(found, own):
        found[:] = [own, {"units": 3, "loss": 2.0, "weight": 1.0}]

    monkeypatch.setattr(strategies, "is_distributed", lambda: True)
    monkeypatch.setattr(strategies.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(strategies.distributed, "all_gather_object", gather)
    sums = Sums(units=5, loss=4.0, weight=2.0, parts={"box": 6.0}).of_all_processes()
    assert (sums.units, sums.loss, sums.weight) == (8, 6.0, 3.0)
    assert sums.losses() == {"train_loss": 2.0, "train_box": 2.0}
