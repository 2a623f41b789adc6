"""Batch-norm statistics that are estimated again: as torch does it, when they are due, and so that figures agree."""

import copy
import csv
import json

import pytest
import torch
from norms import statistics_differences
from torch import nn
from torch.optim.swa_utils import update_bn
from torch.testing import assert_close

from lambdanets import create_model
from lambdanets.data import Batch, Data
from lambdanets.data.splits import fixed_shuffle
from lambdanets.runs import RunFolder, train
from lambdanets.runs.configs import resolve
from lambdanets.train import norm_statistics
from lambdanets.train.norm_statistics import NormStatistics, estimate_statistics, norms_of
from tiny import image_data, tiny

SMALL = dict(width=4, h=2, k=4, image_size=8, in_chans=3)


@pytest.fixture(autouse=True)
def _without_pictures(monkeypatch):
    monkeypatch.setattr("lambdanets.runs.run.draw", lambda *_: None)


def small_network(**options) -> nn.Module:
    torch.manual_seed(0)
    network = create_model("lambda_resnet14_small", **SMALL, **options).eval()
    for parameter in network.parameters():  # at initialisation some scales are zero, and hide what is before them
        parameter.data += 0.1 * torch.randn_like(parameter)
    return network


def estimate_from(network: nn.Module, batches) -> None:
    """From tensors."""
    made = [Batch(inputs=images, counts=[1] * len(images), names=["x"] * len(images)) for images in batches]
    estimate_statistics(network, made, lambda batch: network(batch.inputs))


def test_equals_update_bn_on_the_same_batches():
    ours = small_network()
    theirs = copy.deepcopy(ours)
    batches = torch.randn(3, 7, 3, 8, 8).unbind()
    estimate_from(ours, batches)
    update_bn(batches, theirs)
    for name, buffer in theirs.named_buffers():
        assert_close(ours.get_buffer(name), buffer, rtol=1e-5, atol=1e-6, msg=name)
    assert any("running_var" in name for name, _ in theirs.named_buffers())


def test_batches_count_by_their_images():
    norm, images = nn.BatchNorm2d(3), torch.randn(11, 3, 5, 5)
    estimate_from(norm, images.split((7, 3, 1)))
    assert_close(norm.running_mean, images[:10].mean((0, 2, 3)))  # a batch of one is left out
    parts = [part.transpose(0, 1).flatten(1).var(1) for part in images[:10].split((7, 3))]
    assert_close(norm.running_var, 0.7 * parts[0] + 0.3 * parts[1])
    before = norm.running_mean.clone()
    estimate_from(norm, [])
    assert torch.equal(norm.running_mean, before)


def test_norms_that_run_several_times_in_a_pass():
    """As heads that several maps share."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(1, momentum=0.3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(x) + self.norm(x + 10)

    network = Twice().eval()
    estimate_from(network, torch.tensor([[[0.0], [2.0]], [[4.0], [6.0]]]).unbind())
    assert float(network.norm.running_mean) == 8  # of 1, 11, 5 and 15
    assert network.norm.momentum == 0.3
    assert not network.norm._forward_pre_hooks


def test_nothing_else_changes():
    """Dropout draws nothing; weights, modes and momenta stay."""
    network = small_network(dropout=0.5, drop_path=0.5)
    networks = [network, copy.deepcopy(network)]
    for norm in norms_of(network):
        norm.momentum = 0.3
    random = torch.get_rng_state()
    batches = torch.randn(2, 7, 3, 8, 8, generator=torch.Generator().manual_seed(0)).unbind()
    for one in networks:
        estimate_from(one, batches)
    assert torch.equal(torch.get_rng_state(), random)
    assert not any(module.training for module in network.modules())
    assert {norm.momentum for norm in norms_of(network)} == {0.3}
    (mine, again) = (dict(one.named_buffers()) for one in networks)
    assert all(torch.equal(mine[name], again[name]) for name in mine)


def test_networks_without_batch_norm_skip_it(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("a sample was asked for")

    monkeypatch.setattr(Data, "sample_loader", refuse)
    with pytest.raises(RuntimeError, match="a sample was asked for"):
        train(tiny("trainer.max_epochs=1"), RunFolder(tmp_path / "with"))
    vit = ["model.name=vit_tiny_small", "data.image_size=8", "data.limit=64", "trainer.max_epochs=1"]
    assert train(resolve("digits", vit), RunFolder(tmp_path / "without")) is not None


@pytest.mark.parametrize(("short_run", "steps"), [(1000, [4, 8, 12]), (12, [12])])
def test_short_runs_estimate_before_every_validation_and_others_before_the_last(
    tmp_path, monkeypatch, short_run, steps
):
    monkeypatch.setattr(norm_statistics, "SHORT_RUN", short_run)
    estimated, estimate = [], NormStatistics.estimate

    def noting_the_step(callback, trainer, module):
        estimated.append(trainer.global_step)
        estimate(callback, trainer, module)

    monkeypatch.setattr(NormStatistics, "estimate", noting_the_step)
    result = train(tiny("trainer.max_epochs=3"), RunFolder(tmp_path))
    assert estimated == steps
    check_figures(tmp_path, result)


def check_figures(folder, result) -> None:
    """The last row of metrics.csv is what is found at the end, to the last digit."""
    with (folder / "metrics.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    names = {"val_loss": "loss", "val_accuracy": "accuracy", "val_accuracy_top5": "top5"}
    found = {name: getattr(result.report, its) for name, its in names.items()}
    assert {name: float(last[name]) for name in names} == found
    assert json.loads((folder / "run.json").read_text())["score"] == float(last["val_accuracy"])


@pytest.mark.parametrize(
    "changes",
    [
        ("trainer.precision=bf16-mixed",),
        ("trainer.precision=64-true",),
        ("model.channels_last=false", "optim.ema_decay=0"),
        ("trainer.max_steps=5",),
    ],
    ids=" ".join,
)
def test_the_last_row_is_what_is_found_at_the_end(tmp_path, changes):
    check_figures(tmp_path, train(tiny(*changes), RunFolder(tmp_path)))


def test_a_run_that_does_not_validate_at_its_end_has_estimated_statistics(tmp_path):
    config = tiny("trainer.max_epochs=2", "trainer.check_val_every_n_epoch=3")
    train(config, RunFolder(tmp_path))
    assert max(statistics_differences(RunFolder(tmp_path)).values()) == 0


def test_the_sample_is_the_same_in_every_pass_and_bounded():
    data = image_data(tiny("data.limit=null").data, 8)
    passes = [[batch.names for batch in data.sample_loader(100)] for _ in range(2)]
    assert passes[0] == passes[1]
    assert [len(names) for names in passes[0]] == [64, 36]
    train = data.splits.train
    labels = [int(train.labels[i]) for i in fixed_shuffle(len(train))[:100]]
    assert len(set(labels)) == 10  # not class by class
