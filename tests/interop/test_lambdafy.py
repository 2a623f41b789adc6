"""ResNets of torchvision and timm become LambdaResNets by the paper's rules."""

import pytest
import timm
import torch
import torchvision
from torch import nn

from lambdanets import LambdaLayer2d, create_model, lambdafy


def parameters(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("placement", ["LLLL", "CCLL", "CLLL", "LCCC", "CC3L"])
def test_torchvisions_resnet50_gets_the_papers_count(placement):
    model = lambdafy(torchvision.models.resnet50(), placement, show=None)
    assert parameters(model) == parameters(create_model("lambda_resnet50", placement=placement))


def test_timms_resnet_d_with_se_becomes_the_350_epoch_hybrid():
    with torch.device("meta"):
        model = timm.create_model("seresnet50", stem_type="deep", stem_width=32, avg_down=True, zero_init_last=False)
        ours = create_model("lambda_resnet50", setup="350", se=True, se_ratio=16, placement="CC1L")
    model = lambdafy(model, "CC1L", show=None)
    # Ours has a strided convolution where timm has a max pool.
    pool = 3 * 3 * 64 * 64 + 2 * 64
    assert parameters(model) == parameters(ours) - pool
    assert model.layer1[0].se is not None
    assert model.layer3[0].se is None
    assert model.layer3[5].se is None


def networks():
    for name in ("resnet18", "resnet50", "wide_resnet50_2"):
        yield f"torchvision {name}", lambda name=name: getattr(torchvision.models, name)(num_classes=7), 224
    for name in ("resnet26t", "resnet50d", "resnetblur50", "resnetrs50"):
        yield f"timm {name}", lambda name=name: timm.create_model(name, num_classes=7), None


@pytest.mark.parametrize(("make", "size"), [n[1:] for n in networks()], ids=[n[0] for n in networks()])
def test_it_runs_and_learns(make, size):
    torch.manual_seed(0)
    model = lambdafy(make(), (2, 4), k=8, scope=7, image_size=64, show=None)
    assert any(isinstance(m, LambdaLayer2d) for m in model.layer2.modules())
    assert not any(isinstance(m, LambdaLayer2d) for m in model.layer3.modules())
    x = torch.randn(2, 3, 65, 47)
    model(x).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    assert model.eval()(x).isfinite().all()


def test_the_rest_keeps_weights_modes_and_dtypes():
    model = torchvision.models.resnet18().to(torch.float64).eval()
    changed = ("layer4.0.conv", "layer4.0.bn2", "layer4.1.conv", "layer4.1.bn2")
    kept = {name: t.clone() for name, t in model.state_dict().items() if not name.startswith(changed)}
    lambdafy(model, "CCCL", image_size=64, show=None)
    state = model.state_dict()
    assert all(state[name].equal(t) for name, t in kept.items())
    assert model.layer4[1].conv1.table.weight.dtype == torch.float64
    assert not model.layer4[1].conv1.training
    assert not model.layer4[1].bn2.weight.any()  # the block begins as its shortcut


def test_the_table_of_costs():
    shown = []
    lambdafy(torchvision.models.resnet50(), show=shown.append)
    lines = shown[0].splitlines()
    assert lines[-1].split() == ["total", "25.56", "->", "14.98", "8.18", "->", "12.03"]
    stages = [f"layer{i}" for i in range(1, 5)]
    assert [line.split()[0] for line in lines[1:]] == ["conv1", "bn1", *stages, "fc", "total"]


def test_shared_embeddings_and_a_given_scope():
    model = lambdafy(torchvision.models.resnet50(), "CCCL", scope=None, share=True, show=None)
    assert model.layer4[1].conv2.table is model.layer4[2].conv2.table
    assert model.layer4[1].conv2.table.is_global


def test_frozen_norms_and_a_single_stage():
    frozen = torchvision.ops.FrozenBatchNorm2d
    model = lambdafy(torchvision.models.resnet18(norm_layer=frozen), 4, image_size=64, show=None)
    assert isinstance(model.layer4[1].conv1, LambdaLayer2d)
    assert not isinstance(model.layer3[1].conv1, LambdaLayer2d)
    assert not model.layer4[1].bn2.weight.any()
    assert model.layer4[1].bn2.weight.requires_grad  # or the block would stay closed
    with pytest.raises(ValueError, match="image_size=-3"):
        lambdafy(model, 1, image_size=-3)


def test_new_layers_of_a_frozen_network_learn():
    model = lambdafy(torchvision.models.resnet18().requires_grad_(False), 4, image_size=64, show=None)
    trained = [p for p in model.parameters() if p.requires_grad]
    for _ in range(2):  # first the gamma opens the block
        model(torch.randn(2, 3, 64, 64)).square().mean().backward()
        torch.optim.SGD(trained, lr=0.1).step()
    gradients = [p.grad for layer in model.modules() if isinstance(layer, LambdaLayer2d) for p in layer.parameters()]
    assert gradients
    assert all(gradient.any() for gradient in gradients)
    assert model.conv1.weight.grad is None


def test_compiled_networks_come_too_late():
    with pytest.raises(ValueError, match=r"behind torch\.compile"):
        lambdafy(torch.compile(torchvision.models.resnet18()))


def test_norms_of_groups_begin_at_zero_too():
    model = torchvision.models.resnet18(norm_layer=lambda d: nn.GroupNorm(4, d))
    lambdafy(model, "CCCL", image_size=64, show=None)
    assert not model.layer4[1].bn2.weight.any()
    assert model.layer4[1].bn1.weight.all()


def heard():
    model = torchvision.models.resnet18()
    model.layer4[0].conv1.register_forward_hook(lambda *_: None)
    return model


@pytest.mark.parametrize(
    ("make", "stages", "message"),
    [
        (lambda: nn.Linear(2, 2), "LLLL", "got a Linear"),
        (torchvision.models.resnet18, "CCCC", "nothing to do"),
        (torchvision.models.resnet18, "LL", "for each of the four stages"),
        (torchvision.models.resnet18, (4, 5), "numbers 1 to 4"),
        (heard, "CCCL", "layer4.0.conv1 has hooks"),
        (torchvision.models.resnext50_32x4d, "CCCL", "layer4.0.conv2 is Conv2d.*groups=32"),
        (lambda: lambdafy(torchvision.models.resnet18(), show=None), "LLLL", "layer1.0 has no 3x3 convolution"),
    ],
)
def test_what_has_no_rule_is_refused(make, stages, message):
    with torch.device("meta"):
        model = make()
    before = list(model.modules())
    with pytest.raises(ValueError, match=message):
        lambdafy(model, stages, show=None)
    assert list(model.modules()) == before
