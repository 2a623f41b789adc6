"""ViTs: counted and computed as those of torchvision and timm, with any layer between the patches."""

import inspect

import pytest
import timm
import torch
import torchvision
from torch import nn

from compare import error, randomise
from lambdanets import create_model
from lambdanets.models import CheckpointError, ResNet, ViT, ViTConfig, load_model, vit_weights
from lambdanets.models.mixers import OnGrid
from lambdanets.models.patches import LearnedPositions
from lambdanets.models.vit_config import VITS
from lambdanets.nn import LambdaLayer2d, LambdaMixer
from lambdanets.nn.attention.global_attention import AttentionMixer
from lambdanets.nn.registry import layer_class, list_layers
from lambdanets.ops.attention import sinusoidal_codes

# Millions.
COUNTS = {"vit_tiny": 5.717, "vit_small": 22.051, "vit_base": 86.568}
TINY = dict(d=16, depth=2, h=2, ratio=2, patch=4, image_size=20, num_classes=7)  # 5 x 5 patches


def tiny(name="vit_tiny_small", **changes):
    torch.manual_seed(0)
    return create_model(name, **{**TINY, **changes})


def images(b=2, height=20, width=20, c=3):
    return torch.randn(b, c, height, width, generator=torch.Generator().manual_seed(1))


def count(model):
    return sum(p.numel() for p in model.parameters())


def test_parameters():
    for name, millions in COUNTS.items():
        with torch.device("meta"):
            ours, timms = create_model(name), timm.create_model(f"{name}_patch16_224")
        assert round(count(ours) / 1e6, 3) == millions
        assert count(ours) == count(timms)
    with torch.device("meta"):
        assert count(ours) == count(torchvision.models.vit_b_16())


def test_torchvisions_weights():
    theirs = torchvision.models.vit_b_16(weights=None).eval()
    scatter(theirs)
    with torch.device("meta"):
        ours = create_model("vit_base").eval()
    ours.load_state_dict(vit_weights(theirs.state_dict()), assign=True)
    x = images(2, 224, 224)
    with torch.no_grad():
        assert error(ours(x), theirs(x).double()) < 1e-5


def test_timms_weights():
    theirs = timm.create_model("vit_tiny_patch16_224").eval()
    scatter(theirs)
    ours = create_model("vit_tiny").eval()
    ours.load_state_dict(vit_weights(theirs.state_dict()))
    x = images(2, 224, 224)
    with torch.no_grad():
        assert error(ours(x), theirs(x).double()) < 1e-5
        assert error(ours.forward_features(x), theirs.forward_features(x).double()) < 1e-5


def scatter(model):
    """As at the start, but with offsets, scales and a head at which a mistake would show."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1 or "head" in name or "token" in name or "pos" in name:
                parameter.add_(0.1 * torch.randn_like(parameter))


def test_old_names_of_torchvision_and_other_weights():
    theirs = {"encoder.layers.encoder_layer_3.mlp.linear_2.bias": torch.zeros(3)}
    assert list(vit_weights(theirs)) == ["encoder.blocks.3.feed.layer.reduce.bias"]
    with pytest.raises(ValueError, match=r"blocks\.0\.ls1\.gamma is not part of a ViT"):
        vit_weights({"blocks.0.ls1.gamma": torch.zeros(3)})


@pytest.mark.parametrize("name", VITS)
def test_every_model_trains(name):
    model = tiny(name)
    assert type(model) is ViT
    assert model.config.mixer == ("lambda" if name.startswith("lambda") else "attention")
    check_that_it_trains(model, images())
    assert torch.equal(model.eval()(images()), model(images()))


@pytest.mark.parametrize("name", VITS)
def test_every_model_trains_as_it_is(name):
    torch.manual_seed(0)
    side = 2 * VITS[name].patch
    model = create_model(name, image_size=side, num_classes=7)
    check_that_it_trains(model, images(2, side, side))


def check_that_it_trains(model, x):
    assert model.eval()(x).isfinite().all()
    y = model.train()(x)
    assert y.shape == (2, 7)
    assert y.isfinite().all()
    y.square().sum().backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.abs().sum() > 0, parameter_name


@pytest.mark.parametrize("name", VITS)
def test_state_is_all_there_is(name):
    model, other = tiny(name), create_model(name, **TINY)
    model(images())
    y = model.eval()(images())
    assert not torch.allclose(other.eval()(images()), y)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(images()), y)


@pytest.mark.parametrize(
    ("name", "pool"),
    [*((name, "mean") for name in list_layers()), *((name, "class") for name in list_layers("tokens"))],
)
def test_any_layer_mixes(name, pool):
    model = tiny(mixer=name, pool=pool)
    layout = "maps" if pool == "mean" and name in list_layers("maps") else "tokens"
    mixer = model.encoder.blocks[0].mix.layer
    layer = mixer.layer if layout == "maps" else mixer
    assert isinstance(mixer, OnGrid) == (layout == "maps")
    assert isinstance(layer, layer_class(name, layout))
    if "project_out" in inspect.signature(type(layer)).parameters:
        assert any(part.endswith("out") and isinstance(its, nn.Linear) for part, its in layer.named_modules())
    x = images(3)
    y = model(x)
    assert y.shape == (3, 7)
    y.square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    model.eval()
    assert error(model(x[1:2]), model(x)[1:2].double()) < 1e-5


@pytest.mark.parametrize("name", list_layers())
def test_any_layer_is_resized_and_comes_back(name, tmp_path):
    model = tiny(mixer=name).eval()
    randomise(model)
    model.resize(28)
    like = tiny(mixer=name, image_size=28)
    assert {k: v.shape for k, v in model.state_dict().items()} == {k: v.shape for k, v in like.state_dict().items()}
    x = images(2, 28, 28)
    y = model(x)
    model.save_pretrained(tmp_path)
    loaded = ViT.from_pretrained(tmp_path)
    assert loaded.config == model.config == like.config
    assert torch.equal(loaded(x), y)


def test_a_change_of_mixer_brings_its_own():
    plain = tiny().config
    assert (plain.mixer, plain.pool, plain.mixer_options) == ("attention", "class", {"bias": True, "positions": "none"})
    changed = tiny(mixer="lambda").config
    assert (changed.mixer, changed.pool, changed.mixer_options) == ("lambda", "mean", {})
    kept = tiny(mixer="lambda", pool="class", mixer_options={"scope": [3]}).config
    assert (kept.pool, kept.mixer_options) == ("class", {"scope": (3,)})
    assert isinstance(tiny(mixer="lambda", pool="class").encoder.blocks[0].mix.layer, LambdaMixer)


def test_a_lambda_vit_sees_the_grid():
    """What a far patch is does not reach a window of 3 x 3, through one block; what is below does."""
    model = tiny("lambda_vit_tiny_small", depth=1, mixer_options={"scope": 3, "terms": "position"}).double().eval()
    layer = model.encoder.blocks[0].mix.layer.layer
    assert isinstance(layer, LambdaLayer2d)
    assert layer.table.scope == (3, 3)
    x = images(1).double().requires_grad_()
    y = model.forward_features(x)
    assert y.shape == (1, 5, 5, 16)
    (gradient,) = torch.autograd.grad(y[0, 2, 2].square().sum(), x)
    reached = gradient.abs().amax((0, 1)).unflatten(0, (5, 4)).unflatten(2, (5, 4)).amax((1, 3)) > 0
    expected = torch.zeros(5, 5, dtype=torch.bool)
    expected[1:4, 1:4] = True
    assert torch.equal(reached, expected)


def test_other_sizes_run_where_positions_are_not_learned():
    model = tiny("lambda_vit_tiny_small", mixer_options={"scope": 3})
    assert model(images(2, 32, 12)).shape == (2, 7)
    assert tiny(positions="sinusoidal")(images(2, 32, 12)).shape == (2, 7)
    with pytest.raises(ValueError, match=r"a grid of \(5, 5\) patches, got \(8, 3\); model.resize"):
        tiny()(images(2, 32, 12))
    with pytest.raises(ValueError, match="multiples of patch=4, got shape"):
        model(images(2, 32, 13))


@pytest.mark.parametrize("pool", ["class", "mean"])
def test_positions(pool):
    ahead = int(pool == "class")
    learned = tiny(pool=pool).positions
    assert learned.weight.shape == (25 + ahead, 16)
    x = torch.zeros(1, 25 + ahead, 16)
    codes = tiny(pool=pool, positions="sinusoidal").positions(x, (5, 5))
    assert not codes[:, :ahead].any()
    on_grid = codes[0, ahead:].unflatten(0, (5, 5))
    axis = sinusoidal_codes(5, 8)
    for i in range(5):
        for j in range(5):
            assert torch.equal(on_grid[i, j], torch.cat([axis[i], axis[j]]))
    assert tiny(pool=pool, positions="none").positions is None


def test_resized_positions_are_the_same_surface():
    positions = LearnedPositions(2, (5, 5), 1)
    rows = torch.arange(25.0) // 5
    with torch.no_grad():
        positions.weight.copy_(torch.cat([torch.tensor([[7.0, 8.0]]), torch.stack([rows, torch.ones(25)], 1)]))
    positions.resize((5, 5))
    assert positions.weight[0].tolist() == [7.0, 8.0]
    positions.resize((15, 15))
    assert positions.weight.shape == (226, 2)
    assert positions.weight[0].tolist() == [7.0, 8.0]
    grid = positions.weight[1:].detach().unflatten(0, (15, 15))
    torch.testing.assert_close(grid[..., 1], torch.ones(15, 15))
    torch.testing.assert_close(grid[7, :, 0], torch.full((15,), 2.0))  # the middle row stays in the middle
    assert (grid.diff(dim=0)[..., 0] > -0.1).all()
    assert positions.double().weight.dtype == torch.float64


def test_the_mean_does_not_know_an_order_that_positions_do_not_tell():
    model = tiny(pool="mean", positions="none").double().eval()
    x = images(1).double()
    patches = x.unfold(2, 4, 4).unfold(3, 4, 4).flatten(2, 3)[:, :, torch.randperm(25)]
    shuffled = patches.unflatten(2, (5, 5)).permute(0, 1, 2, 4, 3, 5).reshape(1, 3, 20, 20)
    assert error(model(shuffled), model(x)) < 1e-12


@pytest.mark.parametrize("patch", [2, 4])
def test_a_stem_of_convolutions(patch):
    model = tiny(stem="conv", patch=patch, in_chans=1)
    assert [layer.out_channels for layer in model.patches.modules() if isinstance(layer, nn.Conv2d)] == (
        [16, 16] if patch == 2 else [8, 16, 16]
    )
    assert model.patches(images(c=1)).shape == (2, 16, 20 // patch, 20 // patch)
    assert model(images(c=1)).shape == (2, 7)


def test_a_callable_makes_mixers(tmp_path):
    model = tiny(mixer=lambda d: AttentionMixer(d, h=4))
    assert model.encoder.blocks[1].mix.layer.heads.h == 4
    assert model(images()).shape == (2, 7)
    with pytest.raises(CheckpointError, match="its own `mixer`"):
        model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="its own mixer"):
        model.resize(28)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("vit_tiny_small", {}),
        ("lambda_vit_tiny_small", {"mixer_options": {"scope": (3, 5), "u": 2}, "num_classes": 0}),
        ("vit_tiny_small", {"stem": "conv", "positions": "sinusoidal", "in_chans": 1}),
    ],
)
def test_what_was_saved_comes_back(tmp_path, name, changes, dtype):
    model = tiny(name, **changes).to(dtype)
    model.save_pretrained(tmp_path / "net")
    for loaded in (ViT.from_pretrained(tmp_path / "net"), load_model(tmp_path / "net")):
        assert loaded.config == model.config
        assert hash(loaded.config) == hash(model.config)
        assert not loaded.training
        state = loaded.state_dict()
        assert all(state[name].equal(t) and state[name].dtype == t.dtype for name, t in model.state_dict().items())
    x = images(c=model.config.in_chans).to(dtype)
    assert torch.equal(loaded(x), model.eval()(x))


def test_a_network_of_another_kind_is_named(tmp_path):
    tiny().save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="holds a ViT, not a ResNet"):
        ResNet.from_pretrained(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"ViT"', '"Perceiver"'))
    with pytest.raises(
        CheckpointError, match="of this version: architecture must be one of ResNet, ViT, got 'Perceiver'"
    ):
        ViT.from_pretrained(tmp_path)


def test_a_new_classifier_is_like_the_rest():
    model = tiny().double().eval()
    model.reset_classifier(3)
    assert model(images().double()).shape == (2, 3)
    assert (model.num_classes, model.config.num_classes) == (3, 3)
    assert model.get_classifier() is model.classifier
    assert not model.classifier.training
    features = model.forward_features(images().double())
    assert model.forward_head(features, pre_logits=True).shape == (2, model.num_features)
    model.reset_classifier(0)
    assert model(images().double()).shape == (2, 16)


def test_dropout_drop_path_and_checkpointing():
    model = tiny(dropout=0.3, drop_path=0.4)
    assert model.encoder.blocks[1].mix.drop_path.rate == 0.4
    assert not torch.equal(model(images()), model(images()))
    model = tiny("lambda_vit_tiny_small").double()
    gradients = []
    for enabled in (False, True):
        model.set_grad_checkpointing(enabled)
        y = model(images().double())
        gradients.append(torch.autograd.grad(y.square().sum(), list(model.parameters())))
    for plain, again in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, again)


@pytest.mark.parametrize("name", ["vit_tiny_small", "lambda_vit_tiny_small"])
def test_formats_and_batches(name):
    model = tiny(name).eval()
    x, expected = images(3), tiny(name).double().eval()(images(3).double())
    assert error(model(x), expected) < 1e-5
    assert error(model.to(memory_format=torch.channels_last)(x.to(memory_format=torch.channels_last)), expected) < 1e-5
    assert model(x[:0]).shape == (0, 7)
    assert tiny(name).bfloat16().eval()(x.bfloat16()).dtype == torch.bfloat16
    with torch.device("meta"):
        shadow = create_model(name)
    assert all(t.is_meta for t in shadow.state_dict().values())
    assert shadow(torch.empty(2, 3, 32, 32, device="meta")).shape == (2, 10)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("name", "changes"),
    [("vit_tiny_small", {}), ("vit_tiny_small", {"positions": "sinusoidal"}), ("lambda_vit_tiny_small", {})],
)
def test_compiles_and_exports(name, changes, tmp_path):
    from lambdanets.interop.export import export

    torch._dynamo.reset()
    model = tiny(name, **changes)
    x, expected = images(), tiny(name, **changes)(images())
    assert error(torch.compile(model, backend="aot_eager", fullgraph=True)(x), expected.double()) < 1e-5
    assert export(tiny(name, **changes).eval(), tmp_path / "vit.pt2").difference < 1e-5


@pytest.mark.unchecked
@pytest.mark.parametrize("name", ["vit_tiny_small", "lambda_vit_tiny_small"])
def test_onnx_equals_the_network_in_another_runtime(name, tmp_path):
    pytest.importorskip("onnxruntime")
    from lambdanets.interop.export import export

    assert export(tiny(name).eval(), tmp_path / "vit.onnx").difference < 1e-4


def test_runs_and_commands_know_the_fields_of_a_vit(tmp_path):
    from lambdanets.cli.model_argument import typed
    from lambdanets.runs.parsing import from_tree
    from lambdanets.train.config import ConfigError

    section = {"name": "vit_tiny_small", "patch": "2", "mixer": "lambda", "mixer_options": {"scope": 3}}
    model = from_tree({"model": section}).model
    assert create_model(model.name, **model.changes).config.patch == 2
    assert model.changes["mixer_options"] == {"scope": 3}
    with pytest.raises(ConfigError, match=r"unknown key model\.placement"):
        from_tree({"model": {"name": "vit_tiny_small", "placement": "CCLL"}})
    changes = typed([("patch", "2"), ("mixer_options", "{'h': 6}")], ViTConfig)
    assert changes == {"patch": 2, "mixer_options": {"h": 6}}


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_size": 30}, "image_size=30, patch=4"),
        ({"patch": 0}, "patch=0"),
        ({"d": 13}, "d_out=13, h=2"),
        ({"depth": 0}, "depth=0"),
        ({"stem": "deep"}, "stem='deep'"),
        ({"stem": "conv", "patch": 3, "image_size": 21}, "patch=3, d=16"),
        ({"pool": "max"}, "pool='max'"),
        ({"positions": "relative"}, "positions='relative'"),
        ({"positions": "sinusoidal", "d": 13}, "d=13"),
        ({"num_classes": -1}, "num_classes=-1"),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"mixer": "attend"}, "unknown layer 'attend'"),
        ({"mixer_options": {"scopes": 3}}, "AttentionMixer has no scopes"),
        ({"placement": "CCLL"}, "unknown option placement; see ViTConfig"),
        ({"middle": nn.Identity}, "unknown option middle; see ViTConfig"),
    ],
)
def test_mistakes_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        tiny(**changes)
