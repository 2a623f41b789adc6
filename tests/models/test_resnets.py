"""ResNets and LambdaResNets: counted as the paper counts them, built by name, run on any size."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from lambdanets import create_model, list_models
from lambdanets.bench.networks import settle
from lambdanets.models import Lambda, ResNet, ResNetConfig, convolution
from lambdanets.models.resnet_config import RESNETS
from lambdanets.nn import LambdaLayer2d

# Millions of trainable parameters, by the rules that fit the published tables.
COUNTS = [
    (25.557, "resnet50", {}),
    (14.984, "lambda_resnet50", {}),
    (16.040, "lambda_resnet50", {"u": 4}),
    (16.040, "lambda_resnet50", {"k": 8, "h": 8, "u": 8}),
    (15.412, "lambda_resnet50", {"k": 32}),
    (14.663, "lambda_resnet50", {"k": 4}),
    (25.491, "lambda_resnet50", {"placement": "LCCC"}),
    (24.993, "lambda_resnet50", {"placement": "LLCC"}),
    (18.814, "lambda_resnet50", {"placement": "CCCL"}),
    (44.605, "resnet101", {"setup": "350"}),
    (63.619, "resnet101", {"setup": "350", "se": True}),
    (36.855, "lambda_resnet101", {}),
    (35.068, "lambda_resnet152", {"placement": "CCLL"}),
]


@pytest.mark.parametrize(("millions", "name", "changes"), COUNTS)
def test_parameters(millions, name, changes):
    with torch.device("meta"):
        model = create_model(name, **changes)
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 3) == millions


def small(name, **changes):
    """At the smallest size that has a map in every stage, one or two blocks to a stage."""
    row = RESNETS[name]
    blocks = tuple(min(n, 1 + (stage == 2)) for stage, n in enumerate(row.blocks))
    placement = "".join("1" if c.isdigit() else c for c in row.placement)
    sizes = {"num_classes": 7, "image_size": 8 if row.setup == "small" else 37, "blocks": blocks}
    return create_model(name, **{**sizes, "placement": placement, **changes})


@pytest.mark.parametrize("name", RESNETS)
def test_every_model_trains(name):
    model = small(name)
    side = model.config.image_size
    assert model.eval()(torch.randn(2, 3, side, side)).isfinite().all()  # as it begins
    for module in model.train().modules():  # what begins at zero would stop gradients
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.ones_(module.weight)
    for x in (torch.randn(2, 3, side, side), torch.randn(3, 3, side + 6, side - 1)):
        y = model(x)
        assert y.shape == (len(x), 7)
        assert y.isfinite().all()
    y.square().sum().backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.abs().sum() > 0, parameter_name


@pytest.mark.parametrize("name", RESNETS)
def test_every_model_trains_at_its_full_depth(name):
    torch.manual_seed(0)
    model = create_model(name, image_size=33, drop_path=0.0, num_classes=7)  # dropped paths have no gradients
    for training in (False, True):  # as it begins
        assert model.train(training)(torch.randn(2, 3, 33, 47)).isfinite().all()
    for module in model.modules():  # what begins at zero would stop gradients
        if isinstance(module, torch.nn.BatchNorm2d) and not module.weight.any():
            torch.nn.init.ones_(module.weight)
    y = model(torch.randn(2, 3, 33, 47))
    y.square().sum().backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.abs().sum() > 0, parameter_name


@pytest.mark.parametrize("name", RESNETS)
def test_state_is_all_there_is(name):
    x = torch.randn(2, 3, 40, 40)
    model, other = (settle(small(name), x).eval() for _ in range(2))
    y = model(x)
    assert not torch.allclose(other(x), y)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), y)


def test_builds_without_memory():
    for name in list_models():
        with torch.device("meta"):
            model = create_model(name)
        assert all(t.is_meta for t in model.state_dict().values())


@pytest.mark.parametrize("setup", ["90", "350", "small"])
def test_feature_maps_are_what_is_said_of_them(setup):
    model = small("lambda_resnet50", setup=setup, image_size=64)
    maps = model.feature_maps(torch.randn(1, 3, 64, 96))
    assert [(c.shape[1], c.shape[2], c.shape[3]) for c in maps] == [
        (info["num_chs"], 64 // info["reduction"], 96 // info["reduction"]) for info in model.feature_info
    ]


def test_hybrids_spread_lambda_layers_evenly():
    model = ResNet.on_meta(RESNETS["lambda_resnet101"])
    lambdas = [[isinstance(b.middle, LambdaLayer2d | torch.nn.Sequential) for b in stage] for stage in model.stages]
    assert [sum(stage) for stage in lambdas] == [0, 0, 3, 3]
    assert [i for i, is_lambda in enumerate(lambdas[2]) if is_lambda] == [6, 14, 22]


def test_any_layer_can_stand_in_the_middle():
    places = []

    def middle(place):
        places.append(place)
        return convolution(place)

    model = small("lambda_resnet50", middle=middle)
    assert model(torch.randn(2, 3, 37, 37)).shape == (2, 7)
    assert [(p.width, p.stride, p.size[0], p.stage, p.block) for p in places] == [
        (64, 1, 10, 0, 0),
        (128, 2, 10, 1, 0),
        (256, 2, 5, 2, 0),
        (256, 1, 3, 2, 1),
        (512, 2, 3, 3, 0),
    ]


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("shortcut", nn.Conv2d(64, 256, 1)),
        ("drop_path", nn.Identity()),
        ("expand", nn.Sequential(nn.Conv2d(64, 256, 1), nn.BatchNorm2d(256), nn.Identity())),
    ],
)
def test_parts_of_a_block_can_be_replaced(name, part):
    """Blocks take some parts together where they are as they were made; others are called one by one."""
    block = create_model("resnet14_small").to(memory_format=torch.channels_last).stages[0][0].eval()
    setattr(block, name, part)
    x = torch.randn(2, 64, 5, 7).contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        inner = block.expand(block.middle_norm(block.middle(block.reduce(x))))
        expected = torch.relu(block.drop_path(inner) + block.shortcut(x))
        torch.testing.assert_close(block(x), expected)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_checkpointing_changes_nothing_but_memory(memory_format):
    model = small("lambda_resnet50").double().to(memory_format=memory_format)
    x = torch.randn(2, 3, 37, 37, dtype=torch.float64).contiguous(memory_format=memory_format)
    found = []
    for enabled in (False, True):
        its = deepcopy(model)
        its.set_grad_checkpointing(enabled)
        gradients = torch.autograd.grad(its(x).square().sum(), list(its.parameters()))
        found.append([*gradients, *its.buffers()])  # statistics, too: of one batch, though it is seen twice
    for plain, again in zip(*found, strict=True):
        torch.testing.assert_close(plain, again)


@pytest.mark.unchecked
@pytest.mark.parametrize("name", ["resnet14_small", "lambda_resnet14_small"])
def test_vmap_sees_one_image_at_a_time(name):
    torch.manual_seed(0)
    model, x = create_model(name, num_classes=3).double().eval(), torch.randn(2, 3, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(torch.func.vmap(lambda image: model(image[None])[0])(x), model(x))


def test_resize_follows_the_image():
    model = small("lambda_resnet50", image_size=64)
    weights = {
        name: layer.table.weight.shape for name, layer in model.named_modules() if isinstance(layer, LambdaLayer2d)
    }
    model.resize(128)
    like = small("lambda_resnet50", image_size=128)
    assert {k: v.shape for k, v in model.state_dict().items()} == {k: v.shape for k, v in like.state_dict().items()}
    assert any(layer.table.weight.shape != weights[n] for n, layer in model.named_modules() if n in weights)
    assert model(torch.randn(2, 3, 128, 128)).shape == (2, 7)


def test_shared_tables():
    model = small("lambda_resnet50", share_tables=True, blocks=(2, 2, 2, 2), image_size=64)
    tables = {id(layer.table) for layer in model.modules() if isinstance(layer, LambdaLayer2d)}
    assert len(tables) == 4  # 16 x 16, 8 x 8, 4 x 4, 2 x 2


def test_tables_that_would_part_are_not_resized():
    model = create_model("lambda_resnet26", share_tables=True, image_size=16)  # the last maps of c4 and c5 are 1 x 1
    with pytest.raises(ValueError, match="share a table, and at image_size=32 those are other layers than at 16"):
        model.resize(32)
    assert model.config.image_size == 16


def test_a_new_classifier_is_like_the_rest():
    model = small("resnet26").double().eval()
    model.reset_classifier(3)
    assert model(torch.randn(2, 3, 37, 37, dtype=torch.float64)).shape == (2, 3)
    assert not model.classifier.training
    assert model.get_classifier() is model.classifier
    features = model.forward_features(torch.randn(2, 3, 37, 37, dtype=torch.float64))
    assert model.forward_head(features, pre_logits=True).shape == (2, model.num_features)


def test_a_new_classifier():
    model = small("resnet26")
    model.reset_classifier(3)
    assert model(torch.randn(2, 3, 37, 37)).shape == (2, 3)
    model.reset_classifier(0)
    assert model(torch.randn(2, 3, 37, 37)).shape == (2, 2048)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"placement": "CCL"}, "placement='CCL'"),
        ({"placement": "CCXL"}, "placement='CCXL'"),
        ({"placement": "CC7L"}, "c4 has 6 blocks"),
        ({"setup": "91"}, "setup='91'"),
        ({"scope": "wide"}, "scope='wide'"),
        ({"num_classes": -1}, "num_classes=-1"),
        ({"image_size": 0}, "image_size=0"),
        ({"blocks": (1, 1, 1)}, r"blocks=\(1, 1, 1\)"),
        ({"blocks": (1, 0, 1, 1)}, "blocks=0"),
        ({"placement": None}, "placement=None"),
        ({"drop_path": 1.0}, "drop_path=1.0"),
        ({"se": True, "se_ratio": 1000}, "se_ratio=1000"),
        ({"scopes": 7}, "unknown option scopes"),
        ({"num_classes": "10"}, "num_classes must be int, got num_classes='10'"),
        ({"num_classes": True}, "num_classes must be int, got num_classes=True"),
        ({"dropout": "a"}, "dropout must be float, got dropout='a'"),
        ({"blocks": 5}, "got blocks=5"),
        ({"layer_options": 3}, "got layer_options=3"),
        ({"se": "no"}, "se must be bool, got se='no'"),
    ],
)
def test_mistakes_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        create_model("resnet50", **changes)
    with pytest.raises(ValueError, match="unknown model 'resnet51'; choose from resnet26"):
        create_model("resnet51")
    assert ResNetConfig(blocks=(1, 1, 1, 1)).placement == "CCCC"


def test_a_setup_brings_what_goes_with_it():
    def setup_of(name, **changes):
        with torch.device("meta"):
            config = create_model(name, **changes).config
        return config.se, config.dropout, config.drop_path, config.image_size

    assert setup_of("lambda_resnet270") == (True, 0.3, 0.2, 256)
    assert setup_of("lambda_resnet270", setup="90") == (False, 0.0, 0.0, 224)
    assert setup_of("lambda_resnet50", setup="350", placement="CC1L") == (True, 0.3, 0.0, 224)
    assert setup_of("resnet50", setup="350") == (False, 0.3, 0.0, 224)
    assert setup_of("resnet50", setup="350", se=True, dropout=0.1) == (True, 0.1, 0.0, 224)
    assert setup_of("resnet50", setup="350", blocks=(3, 8, 36, 3)) == (False, 0.3, 0.0, 256)


@pytest.mark.unchecked
def test_a_wrong_number_of_classes_changes_nothing():
    model = create_model("resnet14_small")
    for wrong in (2.5, -1):
        with pytest.raises(ValueError, match="num_classes"):
            model.reset_classifier(wrong)
    assert model.config.num_classes == model.classifier.out_features == 10
    for other in ("max", ""):
        with pytest.raises(ValueError, match=f"the pool stays 'avg', got global_pool='{other}'"):
            model.reset_classifier(3, other)
    model.reset_classifier(3, "avg")
    assert model.num_classes == 3


def test_layers_of_ones_own_are_not_resized_by_guess():
    model = create_model("lambda_resnet14_small", middle=convolution)
    model.resize(48)
    assert model.config.image_size == 48
    model = create_model("lambda_resnet14_small", middle=Lambda(scope=None))
    with pytest.raises(ValueError, match="image_size=48: resize each of them"):
        model.resize(48)


def test_options_belong_to_the_layers_that_have_them():
    for changes, complaint in (
        ({"layer": "axial", "k": 8}, "k is for lambda layers"),
        ({"layer": "local", "scope": 5}, "scope is for lambda layers"),
        ({"layer_options": {"scope": 5}}, "layer_options are for the blocks marked L"),
    ):
        with pytest.raises(ValueError, match=complaint):
            create_model("resnet14_small", **changes)
    assert create_model("resnet14_small", layer="local", layer_options={"scope": 5}).config.placement == "LLLL"
    for changes, complaint in (
        ({"layer_options": {"foo": 1}}, "lambda has no foo"),
        ({"layer_options": {"size": 8}}, "lambda has no size"),  # which the network decides
        ({"layer_options": {"stride": 2}}, "lambda has no stride"),
        ({"layer_options": {"share": True}}, "lambda has no share"),
        ({"layer_options": {"k": 8}}, "fields of the configuration for k, got"),
        ({"layer": "axial", "layer_options": {"size": 8}}, "axial has no size"),
        ({"middle": convolution, "k": 8}, "lambda layers take k=8, but middle makes the layers"),
        ({"middle": convolution, "layer": "axial"}, "middle must make a layer from its place"),
        ({"middle": convolution, "layer_options": {"dilation": 2}}, "middle must make a layer from its place"),
        ({"layer": "squeeze+convolution"}, "a convolution can only come first, got layer='squeeze"),
    ):
        with pytest.raises(ValueError, match=complaint):
            create_model("lambda_resnet14_small", **changes)


def test_options_of_lambda_layers_find_some():
    for changes in ({"scope": 7}, {"k": 8}, {"share_tables": True}, {"middle": convolution}):
        with pytest.raises(ValueError, match="resnet14_small has convolutions only"):
            create_model("resnet14_small", **changes)
    assert create_model("resnet14_small", scope=7, placement="CCCC").config.is_convolutional
