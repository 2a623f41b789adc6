"""timm makes our networks by name, with its own names for options."""

import pytest
import timm
import torch
from timm.optim import create_optimizer_v2

import lambdanets.interop.timm_models
from lambdanets import create_model
from lambdanets.interop.timm_models import timm_name
from lambdanets.models import Network
from lambdanets.models.families import rows
from lambdanets.models.images import ImageConfig
from lambdanets.train.schedule import parameter_groups

CLASSIFIERS = [name for name, row in rows().items() if isinstance(row, ImageConfig)]


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_every_network_is_registered_and_the_same(name):
    with torch.device("meta"):
        theirs, ours = timm.create_model(timm_name(name)), create_model(name)
    assert isinstance(theirs, Network)
    assert theirs.config == ours.config
    assert theirs.pretrained_cfg["input_size"] == (3, ours.config.image_size, ours.config.image_size)
    assert theirs.get_submodule(theirs.pretrained_cfg["classifier"]) is theirs.classifier
    assert theirs.get_submodule(theirs.pretrained_cfg["first_conv"]).in_channels == 3


def test_timms_own_names_stay_timms():
    assert timm.create_model("resnet26").__class__.__module__ == "timm.models.resnet"
    assert timm_name("lambda_resnet50") in timm.list_models("lambda_resnet*", module="timm_models")


def test_timms_names_for_options():
    model = timm.create_model(
        "lambda_resnet26", num_classes=7, in_chans=1, img_size=(64, 64), drop_rate=0.1, drop_path_rate=0.2, k=8
    )
    config = model.config
    assert (config.num_classes, config.in_chans, config.image_size, config.k) == (7, 1, 64, 8)
    assert (config.dropout, config.drop_path) == (0.1, 0.2)
    assert model.num_classes == 7
    assert model(torch.randn(2, 1, 64, 64)).shape == (2, 7)
    assert timm.data.resolve_model_data_config(model)["input_size"] == (1, 64, 64)
    with pytest.raises(ValueError, match="one way to pool"):
        timm.create_model("lambda_resnet26", global_pool="")
    with pytest.raises(ValueError, match="square images"):
        timm.create_model("lambda_resnet26", img_size=(64, 32))


def test_timms_names_for_options_of_a_vit():
    model = timm.create_model("lambdanets_vit_tiny_small", img_size=16, in_chans=1, global_pool="avg", drop_rate=0.1)
    assert (model.config.image_size, model.config.pool, model.config.dropout) == (16, "mean", 0.1)
    assert model(torch.randn(2, 1, 16, 16)).shape == (2, 10)
    with pytest.raises(ValueError, match="the pool stays 'avg', got global_pool='token'"):
        model.reset_classifier(4, "token")
    model = timm.create_model("lambdanets_vit_tiny_small")
    model.reset_classifier(4, "token")
    assert (model.num_classes, model.head_hidden_size) == (4, 192)
    with pytest.raises(ValueError, match="the pool stays 'token', got global_pool='avg'"):
        model.reset_classifier(5, "avg")
    with pytest.raises(ValueError, match="features_only=True"):
        timm.create_model("lambda_vit_tiny", features_only=True)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("lambda_resnet26", {"setup": "small"}),
        ("lambda_resnet26", {"setup": "350"}),
        ("lambda_vit_tiny", {"stem": "conv"}),
    ],
)
def test_the_first_convolution_is_found_after_changes(name, changes):
    model = timm.create_model(name, in_chans=1, **changes)
    first = model.get_submodule(model.pretrained_cfg["first_conv"])
    assert isinstance(first, torch.nn.Conv2d)
    assert first.in_channels == 1


def test_two_names_for_one_thing_are_refused():
    with pytest.raises(ValueError, match=r"drop_rate and dropout mean the same, got drop_rate=0\.1 and dropout=0\.2"):
        timm.create_model("lambda_resnet26", drop_rate=0.1, dropout=0.2)


@pytest.mark.unchecked
def test_a_scope_that_is_global():
    """timm drops None."""
    model = timm.create_model("lambda_resnet14_small", scope="global")
    assert model.config == create_model("lambda_resnet14_small", scope=None).config


def test_feature_maps_for_detectors():
    torch.manual_seed(0)
    backbone = timm.create_model("lambda_resnet26", features_only=True, img_size=64).eval()
    assert backbone.feature_info.channels() == [256, 512, 1024, 2048]
    assert backbone.feature_info.reduction() == [4, 8, 16, 32]
    torch.manual_seed(0)
    model = create_model("lambda_resnet26", image_size=64).eval()
    x = torch.randn(1, 3, 64, 64)
    for theirs, ours in zip(backbone(x), model.feature_maps(x), strict=True):
        assert torch.equal(theirs, ours)
    two = timm.create_model("lambda_resnet26", features_only=True, out_indices=(2, 3))
    assert [f.shape[1] for f in two(torch.randn(2, 3, 64, 64))] == [1024, 2048]


@pytest.mark.parametrize(
    ("name", "first", "last", "groups"),
    [
        ("lambda_resnet14_small", "stem.", "classifier.", 1 + 4 + 1),
        ("lambdanets_vit_tiny_small", ("patches.", "class_token.", "positions."), "classifier.", 1 + 6 + 1),
    ],
)
def test_learning_rates_fall_towards_the_image(name, first, last, groups):
    model = timm.create_model(name)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    optimizer = create_optimizer_v2(model, "sgd", lr=1.0, weight_decay=0.1, layer_decay=0.5)
    scales = {names[id(p)]: group["lr_scale"] for group in optimizer.param_groups for p in group["params"]}
    assert scales.keys() == set(names.values())
    assert sorted(set(scales.values())) == [0.5**i for i in reversed(range(groups))]
    assert all((scale == 0.5 ** (groups - 1)) == name.startswith(first) for name, scale in scales.items())
    assert all(scales[name] == 1 for name in scales if name.startswith(last))
    assert len(timm.models.group_modules(model, model.group_matcher(coarse=True))) <= groups


@pytest.mark.parametrize("name", ["lambda_resnet14_small", "lambdanets_vit_tiny_small"])
def test_the_same_weights_decay_as_in_our_trainer(name):
    model = timm.create_model(name)
    theirs = create_optimizer_v2(model, "sgd", lr=1.0, weight_decay=0.1).param_groups
    ours = parameter_groups(model, 0.1)
    for groups in (theirs, ours):
        assert {group["weight_decay"] for group in groups} == {0.0, 0.1}
    decaying = [{id(p) for g in groups if g["weight_decay"] for p in g["params"]} for groups in (theirs, ours)]
    assert decaying[0] == decaying[1]
    assert model.no_weight_decay()


def test_there_are_no_weights_to_download():
    with pytest.raises(RuntimeError, match="pretrained"):
        timm.create_model("lambda_resnet26", pretrained=True)


def test_the_module_is_the_one_that_registers():
    assert timm.models.is_model("lambda_resnet50")
    assert lambdanets.interop.timm_models.__all__ == [timm_name(name) for name in CLASSIFIERS]
