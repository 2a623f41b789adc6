"""Layers and networks of lucidrains and timm answer the same once their layers are ours."""

import copy
import sys

import pytest
import timm
import torch
from lambda_networks import LambdaLayer as Lucidrains
from timm.layers.lambda_layer import LambdaLayer as Timm
from torch import nn

from lambdanets import LambdaLayer2d, adopt
from lambdanets.interop.peers import CannotAdoptError

TIMM_MODELS = ("lambda_resnet26t", "lambda_resnet26rpt_256", "lambda_resnet50ts")


def scrambled(module):
    """Weights and statistics of every kind at random: zeros and ones would hide a mistake."""
    for parameter in module.parameters():
        scale = 0.1 if parameter.ndim == 1 else parameter[0].numel() ** -0.5
        parameter.data.normal_(1.0 if parameter.ndim == 1 else 0.0, scale)
    for norm in module.modules():
        if isinstance(norm, nn.modules.batchnorm._BatchNorm) and norm.track_running_stats:
            norm.running_mean.normal_(0, 0.3)
            norm.running_var.uniform_(0.5, 1.5)
    return module


def off_by(ours, theirs):
    return float((ours - theirs).abs().max() / theirs.abs().max())


def agree(theirs, ours, x, tolerance):
    """In eval mode, then in two steps of training, whose statistics the third answer shows."""
    for training in (False, True, True, False):
        theirs.train(training)
        ours.train(training)
        assert off_by(ours(x), theirs(x)) <= tolerance, f"training={training}"


LAYERS = {
    "lucidrains": lambda: Lucidrains(13, dim_k=7, r=5, heads=3, dim_out=15),
    "lucidrains with u": lambda: Lucidrains(13, dim_k=7, r=5, heads=3, dim_out=15, dim_u=2),
    "lucidrains, global": lambda: Lucidrains(13, dim_k=7, n=11, heads=3, dim_out=15),
    "lucidrains, global, with u": lambda: Lucidrains(13, dim_k=7, n=11, heads=3, dim_out=15, dim_u=2),
    "timm": lambda: Timm(15, num_heads=3, dim_head=7, r=5),
    "timm with biases": lambda: Timm(15, num_heads=3, dim_head=7, r=5, qkv_bias=True),
    "timm, global": lambda: Timm(15, feat_size=(11, 11), num_heads=3, dim_head=7, r=None),
    "timm, strided": lambda: Timm(15, stride=2, num_heads=3, dim_head=7, r=5),
    "timm, without statistics": lambda: without_statistics(Timm(15, num_heads=3, dim_head=7, r=5)),
}


def without_statistics(layer):
    layer.norm_q = nn.BatchNorm2d(21, eps=1e-2, affine=False, track_running_stats=False)
    layer.norm_v = nn.BatchNorm2d(5, momentum=None)
    return layer


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("kind", LAYERS)
def test_a_layer_answers_the_same(kind, dtype, tolerance):
    torch.manual_seed(0)
    theirs = scrambled(LAYERS[kind]()).to(dtype)
    ours = adopt(theirs, show=None)
    d = 15 if kind.startswith("timm") else 13
    agree(theirs, ours, torch.randn(2, d, 11, 11, dtype=dtype), tolerance)


@pytest.mark.parametrize("kind", ["lucidrains with u", "timm"])
def test_gradients_are_those_of_the_peer(kind):
    torch.manual_seed(0)
    theirs = scrambled(LAYERS[kind]()).double()
    ours = adopt(theirs, show=None)
    x = torch.randn(2, 15 if kind == "timm" else 13, 9, 11, dtype=torch.float64, requires_grad=True)
    y, z = theirs(x), ours(x)
    cotangent = torch.randn_like(y)
    dx, dtable = torch.autograd.grad(
        y, [x, theirs.conv_lambda.weight if kind == "timm" else theirs.pos_conv.weight], cotangent
    )
    ours_dx, ours_dtable = torch.autograd.grad(z, [x, ours.table.weight], cotangent)
    assert off_by(ours_dx, dx) <= 1e-12
    assert off_by(ours_dtable.sum(0), dtable.sum((2, 3, 4)).reshape(ours_dtable.shape[1:])) <= 1e-12


def random_network(name):
    torch.manual_seed(0)
    return scrambled(timm.create_model(name, num_classes=7))


@pytest.mark.parametrize("name", TIMM_MODELS)
def test_timms_networks_answer_the_same(name):
    theirs = random_network(name).double()
    ours = adopt(copy.deepcopy(theirs), show=None)
    assert not [m for m in ours.modules() if isinstance(m, Timm)]
    side = 256 if "256" in name else 64
    agree(theirs, ours, torch.randn(2, 3, side, side, dtype=torch.float64), 1e-9)


def test_a_network_made_of_lucidrains_layers():
    torch.manual_seed(0)
    layers = [
        Lucidrains(16, dim_k=8, r=7),
        nn.ReLU(),
        Lucidrains(16, dim_k=8, n=10, dim_u=2),
        nn.Flatten(),
        nn.LazyLinear(5),
    ]
    theirs = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *layers)
    theirs(torch.randn(2, 3, 10, 10))
    theirs = scrambled(theirs).double()
    ours = adopt(copy.deepcopy(theirs), show=None)
    agree(theirs, ours, torch.randn(3, 3, 10, 10, dtype=torch.float64), 1e-9)


def test_modes_gradients_and_second_places_stay():
    layer = Timm(16, r=3)
    layer.qkv.requires_grad_(False)
    layer.norm_v.eval()
    model = nn.ModuleDict({"a": layer, "b": layer, "other": nn.Linear(2, 2)}).to(torch.bfloat16)
    assert adopt(model, show=None) is model
    ours = model["a"]
    assert isinstance(ours, LambdaLayer2d)
    assert model["b"] is ours
    assert not ours.query.weight.requires_grad
    assert ours.table.weight.requires_grad
    assert ours.query_norm.training
    assert not ours.value_norm.training
    assert {t.dtype for t in ours.parameters()} == {torch.bfloat16}


def test_layers_that_are_given_their_map_by_name():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = Timm(16)

        def forward(self, x):
            return self.layer(x=x)

    theirs, x, shown = scrambled(Named()).eval(), torch.randn(2, 16, 7, 11), []
    ours = adopt(copy.deepcopy(theirs), x, show=shown.append)
    assert off_by(ours(x), theirs(x)) <= 1e-5
    assert "7 x 11 feature maps" in shown[0]


def test_a_pool_behind_has_the_mode_of_the_layer():
    model = adopt(nn.Sequential(Timm(16, r=3, stride=2)).eval(), show=None)
    assert not any(module.training for module in model.modules())


def test_the_report_has_every_layer_and_the_model():
    model = nn.Sequential(Timm(16, r=3), nn.ReLU(), Timm(16, r=5)).train()
    model[0].norm_q.eval()
    lines = []
    adopt(model, torch.randn(2, 16, 9, 7), show=lines.append)
    first, second, whole = lines[0].splitlines()
    assert first.startswith("0: timm, 16 channels, 9 x 7 feature maps: outputs within")
    assert second.startswith("2: timm")
    assert whole.startswith("Sequential on (2, 16, 9, 7): ")
    assert all(line.endswith("times as fast)") for line in (first, second, whole))
    assert model.training
    assert not model[0].query_norm.training


class Child(Timm):
    pass


def hooked():
    layer = Timm(16)
    layer.qkv.register_forward_hook(lambda *_: None)
    return layer


def other_norm():
    layer = Timm(16)
    layer.norm_q = nn.GroupNorm(1, 64)
    return layer


def dilated():
    layer = Timm(16, r=5)
    layer.conv_lambda = nn.Conv3d(1, 16, (5, 5, 1), padding=(4, 4, 0), dilation=(2, 2, 1))
    return layer


def biased():
    layer = Lucidrains(16, dim_k=4, n=11, heads=2)
    layer.to_q = nn.Conv2d(16, 8, 1, bias=True)
    return layer


def sharing():
    a, b = Timm(16), Timm(16)
    b.qkv = a.qkv
    return nn.Sequential(a, b)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Linear(2, 2), "has no lambda layer"),
        (lambda: LambdaLayer2d(16), "has no lambda layer"),
        (lambda: nn.Sequential(Timm(16), Child(16)), r"1: Child is made from timm.layers.lambda_layer.LambdaLayer"),
        (
            lambda: nn.Sequential(Timm(16), Timm(16, r=4)),
            "1, of timm.*, cannot be adopted: its conv_lambda is Conv3d.*odd",
        ),
        (lambda: nn.Sequential(hooked()), "0, of .* it has hooks"),
        (lambda: nn.Sequential(other_norm()), "its query_norm is GroupNorm.*, not a batch norm"),
        (lambda: nn.Sequential(dilated()), "its conv_lambda is Conv3d.*dilation"),
        (lambda: nn.Sequential(biased()), "its to_q is Conv2d.*, and our projections have no bias"),
        (sharing, "0 cannot be adopted: it shares parameters with another"),
    ],
)
def test_what_cannot_be_mapped_is_refused_and_left_alone(make, message):
    model = make()
    before = list(model.modules())
    with pytest.raises(CannotAdoptError, match=message):
        adopt(model, show=None)
    assert list(model.modules()) == before


def test_layers_that_cannot_be_run(monkeypatch):
    with pytest.raises(CannotAdoptError, match="cannot be run on an example"):
        adopt(nn.Sequential(Lucidrains(8, dim_k=4, n=5)), torch.randn(1, 8, 7, 7), show=None)
    lines = []
    monkeypatch.setattr(sys.modules[adopt.__module__], "LARGEST", 100)
    adopt(Lucidrains(8, dim_k=4, n=5), show=lines.append)
    assert lines == ["the layer: lambda_networks, 8 channels, too large to be compared"]


def test_a_difference_is_refused(monkeypatch):
    model = nn.Sequential(Timm(16, r=3))
    before = model[0]
    monkeypatch.setattr(Timm, "forward", lambda self, x: torch.ones_like(x))
    with pytest.raises(CannotAdoptError, match="0: timm, 16 channels: ours differs by"):
        adopt(model, show=None)
    assert model[0] is before


def test_a_failure_while_timing_changes_nothing():
    class Moody(nn.Sequential):
        calls = 0

        def forward(self, x):
            self.calls += 1
            if self.calls == 4:
                raise RuntimeError("no more")
            return super().forward(x)

    model = Moody(Timm(16, r=3))
    before = model[0]
    with pytest.raises(RuntimeError, match="no more"):
        adopt(model, torch.randn(1, 16, 5, 5), show=None)
    assert model[0] is before
    assert model.training


def test_layers_without_memory():
    with torch.device("meta"):
        model = nn.Sequential(Timm(16, r=3))
    adopt(model, show=None)
    assert model[0].table.weight.is_meta
