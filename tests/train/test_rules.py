"""The rules of the recipes, each on its own."""

import copy
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from lambdanets import create_model
from lambdanets.data.images.mixing import Mixing
from lambdanets.nn.tables import RelationTable
from lambdanets.runs.configs import list_recipes, resolve
from lambdanets.train.averages import decay_at, decay_for, pairs_of, set_norm_decay, update_average
from lambdanets.train.config import OptimConfig, TrainerConfig
from lambdanets.train.schedule import Steps, lr_factor, make_optimizer, parameter_groups, planned_steps

SMALL = dict(width=4, h=2, k=4, image_size=8)


def test_norms_biases_and_tables_do_not_decay():
    model = create_model("lambda_resnet14_small", share_tables=True, **SMALL)
    decaying, staying = (group["params"] for group in parameter_groups(model, 0.1))
    assert {id(p) for p in model.parameters()} == {id(p) for p in [*decaying, *staying]}
    assert len(list(model.parameters())) == len(decaying) + len(staying)
    tables = [p for m in model.modules() if isinstance(m, RelationTable) for p in m.parameters()]
    assert tables
    assert all(any(p is table for p in staying) for table in tables)
    norms = [p for m in model.modules() if isinstance(m, nn.BatchNorm2d) for p in m.parameters()]
    assert all(any(p is one for p in staying) for one in norms)
    assert all(p.ndim > 1 for p in decaying)


def test_the_learning_rate_scales_with_the_images_of_a_step():
    model = nn.Linear(3, 2)
    assert make_optimizer(model, OptimConfig(lr=0.1), 4096).param_groups[0]["lr"] == pytest.approx(1.6)
    assert make_optimizer(model, OptimConfig(lr=0.1, lr_batch=None), 4096).param_groups[0]["lr"] == 0.1
    assert isinstance(make_optimizer(model, OptimConfig(optimizer="adamw"), 64), torch.optim.AdamW)


def factor(step: int, run: int, warmup: int, **optim) -> float:
    return lr_factor(step, Steps(epoch=10, run=run, warmup=warmup, items=32), OptimConfig(**optim))


def test_warm_up_in_steps():
    def warmup(**optim) -> int:
        return planned_steps(10, 32, TrainerConfig(max_epochs=10), OptimConfig(**optim)).warmup

    assert (warmup(warmup_epochs=2.0), warmup(warmup_epochs=2.0, warmup_steps=7), warmup(warmup_steps=99)) == (
        20,
        7,
        25,
    )


def test_warm_up_is_a_line_and_the_rest_a_cosine():
    shares = [factor(step, 100, 10) for step in range(101)]
    assert shares[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert shares[10] == 1
    assert shares[55] == pytest.approx(0.5)
    assert shares[100] == pytest.approx(0, abs=1e-12)
    assert all(a >= b for a, b in pairwise(shares[9:]))
    assert factor(0, 0, 0) == 1
    assert factor(3, 2, 0) == pytest.approx(0)


def test_other_schedules():
    assert [factor(step, 100, 10, schedule="linear") for step in (4, 10, 55, 100)] == pytest.approx([0.5, 1, 0.5, 0])
    assert [factor(step, 100, 0, schedule="constant") for step in (0, 50, 100)] == [1, 1, 1]
    steps = [factor(step, 100, 5, schedule="step", milestones=(3.0, 6.0), gamma=0.1) for step in (4, 5, 29, 30, 60, 99)]
    assert steps == pytest.approx([1, 1, 1, 0.1, 0.01, 0.01])  # epochs have ten steps


@pytest.mark.parametrize(
    ("trainer", "epoch", "run"),
    [
        (TrainerConfig(max_epochs=3), 10, 30),
        (TrainerConfig(max_epochs=3, accumulate_grad_batches=4), 3, 9),
        (TrainerConfig(max_epochs=3, limit_train_batches=4), 4, 12),
        (TrainerConfig(max_epochs=3, limit_train_batches=0.5), 5, 15),
        (TrainerConfig(max_epochs=3, max_steps=7), 10, 7),
    ],
)
def test_steps_are_known_before_the_run(trainer, epoch, run):
    steps = planned_steps(10, 32, trainer, OptimConfig(warmup_epochs=1.5))
    assert (steps.epoch, steps.run) == (epoch, run)
    assert steps.warmup == min(round(1.5 * epoch), run // 4)
    assert steps.items == 32 * trainer.accumulate_grad_batches


@pytest.mark.parametrize(
    ("epochs", "warmup_epochs", "warmup"),
    [(20, 5.0, 50), (40, 3.0, 30), (19, 5.0, 47), (5, 3.0, 12), (1, 5.0, 2), (8, 0.0, 0)],
)
def test_warm_up_is_a_quarter_of_the_run_at_most(epochs, warmup_epochs, warmup):
    steps = planned_steps(10, 32, TrainerConfig(max_epochs=epochs), OptimConfig(warmup_epochs=warmup_epochs))
    assert steps.warmup == warmup


def test_the_cap_leaves_the_warm_up_of_recipes_as_it_is():
    for recipe in list_recipes():
        config = resolve(recipe)
        steps = planned_steps(100, 32, config.trainer, config.optim)
        assert steps.warmup == 100 * config.optim.warmup_epochs, recipe


def test_short_runs_forget_faster():
    assert decay_for(0.9999, 28_000, 0.1) == pytest.approx(1 - 1 / 2800)
    assert decay_for(0.9999, 10**6, 0.1) == 0.9999
    assert decay_for(0.9999, 1, 0.1) == 0
    norm = nn.BatchNorm2d(2)
    set_norm_decay(norm, 0.9999, 28_000)
    assert norm.momentum == pytest.approx(1 / 280)
    set_norm_decay(norm, 0.9999, 1000)
    assert norm.momentum == pytest.approx(0.1)
    set_norm_decay(norm, 0.5, 10**9)
    assert norm.momentum == 0.5


def test_the_average_is_what_its_formula_says():
    torch.manual_seed(0)
    model = create_model("lambda_resnet14_small", share_tables=True, **SMALL)
    average = copy.deepcopy(model)
    expected = {name: t.clone() for name, t in average.state_dict().items()}
    for step in range(1, 4):
        for tensor in [*model.parameters(), *model.buffers()]:
            tensor.data += 1 if not tensor.is_floating_point() else torch.randn_like(tensor)
        decay = decay_at(step, 0.9)
        update_average(pairs_of(average, model), decay)
        for name, new in model.state_dict().items():
            old = expected[name]
            expected[name] = decay * old + (1 - decay) * new if new.is_floating_point() else new.clone()
    for name, tensor in average.state_dict().items():
        assert_close(tensor, expected[name], msg=name)


@pytest.mark.parametrize(("mixup", "cutmix"), [(0.2, 0.0), (0.0, 1.0), (0.2, 1.0)])
def test_mixed_labels_are_shares(mixup, cutmix):
    torch.manual_seed(0)
    images, labels = Mixing(5, mixup, cutmix)(torch.rand(7, 3, 8, 8), torch.arange(7) % 5)
    assert images.shape == (7, 3, 8, 8)
    assert_close(labels.sum(1), torch.ones(7))
    assert (labels > 0).sum(1).max() == 2
