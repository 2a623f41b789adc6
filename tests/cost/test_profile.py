"""The profile adds up, leaves the network alone, and works on networks of others."""

import json

import pytest
import torch
import torchvision
from torch import nn

from lambdanets import LambdaLayer2d, LambdaMixer, create_model, lambdafy
from lambdanets.cli.main import main
from lambdanets.cost import count, profile, totals
from lambdanets.kernels import unavailable
from lambdanets.nn import rectified

SMALL = dict(blocks=(1, 1, 1, 1), image_size=32, num_classes=5)


def test_stages_add_up_and_nothing_changes():
    model = create_model("lambda_resnet26_small", **SMALL)
    model.stages[1].eval()
    state = {name: t.clone() for name, t in model.state_dict().items()}
    modes = {name: m.training for name, m in model.named_modules()}
    x = torch.randn(2, 3, 32, 32)
    *stages, whole = profile(model, x, rounds=2)
    assert [stage.name for stage in stages] == ["stem", *(f"stages.{i}" for i in range(4)), "classifier"]
    assert whole.name == "total"
    assert (whole.parameters, whole.flops) == totals(count(model, x.shape))
    for what in ("parameters", "flops"):
        assert sum(getattr(stage, what) for stage in stages) == getattr(whole, what)
    assert 0.9 * whole.activation_bytes <= sum(s.activation_bytes for s in stages) <= whole.activation_bytes
    assert 0 < sum(stage.seconds for stage in stages) <= whole.seconds
    assert sum(sum(stage.plans.values()) for stage in stages) == sum(whole.plans.values()) == 4
    assert all(model.state_dict()[name].equal(t) for name, t in state.items())
    assert {name: m.training for name, m in model.named_modules()} == modes
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_what_is_kept_adds_up_under_checkpointing():
    model, x = create_model("lambda_resnet26_small", **SMALL), torch.randn(2, 3, 32, 32)
    everything = profile(model, x, rounds=1)[-1].activation_bytes
    model.set_grad_checkpointing()
    *stages, whole = profile(model, x, rounds=1)
    costs = {stage.name: stage.activation_bytes for stage in stages}
    assert costs["stages.1"] == 0 < costs["ResNet"]  # the inputs of blocks are kept by who calls these
    assert sum(costs.values()) == whole.activation_bytes < everything


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_may_be_off(mode):
    model, x = create_model("lambda_resnet26_small", **SMALL), torch.randn(2, 3, 32, 32)
    kept = [cost.activation_bytes for cost in profile(model, x, rounds=1)]
    with mode():
        assert [cost.activation_bytes for cost in profile(model, x.clone(), rounds=1)] == kept


def test_a_part_may_be_called_total():
    model = nn.Sequential()
    model.add_module("total", nn.Linear(4, 6))
    model.add_module("rest", nn.Linear(6, 2))
    assert [(c.name, c.parameters) for c in profile(model, torch.randn(3, 4), rounds=1)] == [
        ("total", 30),
        ("rest", 14),
        ("total", 44),
    ]


def test_a_layer_alone_is_named():
    *parts, whole = profile(LambdaLayer2d(16), torch.randn(2, 16, 9, 9), rounds=1)
    costs = {cost.name: cost for cost in parts}
    assert costs["LambdaLayer2d"].flops == whole.flops > 0
    assert 0 < costs["LambdaLayer2d"].seconds <= whole.seconds
    assert sum(costs["LambdaLayer2d"].plans.values()) == 1


def test_a_layer_alone_keeps_what_it_keeps_in_a_network():
    """Nobody listens to its parts, which would be computed another way."""
    layer, x = LambdaLayer2d(16), torch.randn(2, 16, 9, 9)
    alone, inside = (profile(module, x, rounds=1)[-1].activation_bytes for module in (layer, nn.Sequential(layer)))
    assert alone == inside > 0


def test_what_would_be_kept_is_known_without_memory():
    model, x = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3), nn.ReLU()), torch.randn(11, 5)
    real, meta = (profile(model.to(device), x.to(device), rounds=1)[-1].activation_bytes for device in ("cpu", "meta"))
    assert real == meta == 4 * 11 * (7 + 3)


def test_what_cannot_be_profiled_says_why():
    model = create_model("lambda_resnet26_small", **SMALL)
    with pytest.raises(ValueError, match=r"from \(1, 3, 8, 8\), take a larger batch"):
        profile(model, torch.randn(1, 3, 8, 8), rounds=1)
    with pytest.raises(ValueError, match="rounds=0"):
        profile(model, torch.randn(2, 3, 8, 8), rounds=0)


def test_what_is_kept_is_what_autograd_keeps():
    """Of a product the input, of a rectifier the output, of a sum nothing."""
    model = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))
    first, relu, second, whole = profile(model, torch.randn(11, 5), rounds=1)
    assert (first.activation_bytes, relu.activation_bytes, second.activation_bytes) == (0, 4 * 77, 0)
    assert whole.activation_bytes == 4 * 77


@pytest.mark.parametrize("plan", [None, "fft"])
def test_the_plan_is_the_one_that_is_taken(plan):
    model = nn.Sequential(nn.Conv2d(3, 16, 1), LambdaLayer2d(16, scope=5, plan=plan))
    layer = profile(model, torch.randn(2, 3, 9, 9), rounds=1)[1]
    assert layer.plans == {plan or layer_choice(model[1]): 1}


def layer_choice(layer):
    return layer.explain(9, b=2, patience=0.0).chosen


@pytest.mark.skipif(unavailable() is not None, reason="there are no kernels")
def test_what_is_timed_is_what_is_run(monkeypatch):
    """On channels-last maps norms are taken together with rectifiers, unless somebody listens to them."""
    calls = []
    real = rectified.rectify
    monkeypatch.setattr(rectified, "rectify", lambda *t: calls.append(1) or real(*t))
    model = create_model("resnet26_small", **SMALL).to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        model.eval()(x)
    once = len(calls)
    assert once > 0
    calls.clear()
    profile(model, x, rounds=2)
    assert len(calls) == 4 * once  # three passes that are timed, one that asks for plans


def test_networks_of_others_and_single_layers():
    model = lambdafy(torchvision.models.resnet18(num_classes=3), "CCCL", image_size=64, show=None)
    costs = {cost.name: cost for cost in profile(model, torch.randn(2, 3, 64, 64), rounds=1)}
    assert sum(costs["layer4"].plans.values()) == 4
    assert not costs["layer1"].plans
    assert [cost.name for cost in profile(LambdaLayer2d(16, scope=3), torch.randn(2, 16, 5, 5), rounds=1)][
        -1
    ] == "total"
    (*_, mixer) = profile(nn.Sequential(LambdaMixer(16, causal=True, scope=7)), torch.randn(2, 9, 16), rounds=1)
    assert sum(mixer.plans.values()) == 1


def test_the_command(tmp_path, capsys):
    small = ["--set", "blocks=(1, 1, 1, 1)", "--set", "num_classes=5"]
    json_file = tmp_path / "p.json"
    arguments = ["--size", "32", "--batch", "2", "--rounds", "1", "--json", str(json_file)]
    main(["profile", "lambda_resnet26_small", *small, *arguments])
    shown = capsys.readouterr().out
    assert "lambda_resnet26_small, 2 images of 32 x 32" in shown
    assert "stages.3" in shown
    assert json.loads(json_file.read_text())[-1]["name"] == "total"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "no model or folder 'nothing'"),
        (["lambda_resnet26_small", "--size", "0"], "must be like 224 or 224x160"),
        (["lambda_resnet26_small", "--json", "/no/such/folder/f"], "its folder is missing or read-only"),
    ],
)
@pytest.mark.unchecked
def test_mistakes_are_one_line(arguments, message, capsys):
    with pytest.raises(SystemExit):
        main(["profile", *arguments])
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_what_is_given_by_name_counts():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix, self.attend = LambdaMixer(16, scope=5), nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, x):
            x = self.mix(x=x)
            return self.attend(query=x, key=x, value=x)[0]

    class Placed(Named):
        def forward(self, x):
            x = self.mix(x)
            return self.attend(x, x, x)[0]

    x = torch.randn(2, 11, 16)
    named, placed = (
        [(cost.name, cost.flops, cost.plans) for cost in profile(m, x, rounds=1)] for m in (Named(), Placed())
    )
    assert named == placed
    assert all(flops > 0 for _, flops, _ in named)
