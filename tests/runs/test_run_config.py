"""A configuration says everything, in words that are checked."""

import csv
from dataclasses import fields, replace

import pytest
import torch
import yaml

from lambdanets.data import Splits
from lambdanets.data.images.sources.arrays import ArraySplit
from lambdanets.models import ViT, list_models
from lambdanets.models.families import rows
from lambdanets.runs import RunFolder, as_yaml, list_recipes, resolve, train
from lambdanets.runs.complete import complete
from lambdanets.runs.configs import header
from lambdanets.runs.networks import network_on_meta
from lambdanets.runs.parsing import from_tree, to_tree
from lambdanets.runs.restore import restore
from lambdanets.tasks.classification import Classification
from lambdanets.train.config import ConfigError, RunConfig

CLASSIFICATION = [name for name in list_recipes() if resolve(name).task == "classification"]


def completed(config: RunConfig, classes: int = 7, channels: int = 3) -> RunConfig:
    """For made-up images."""
    images = torch.zeros(classes, channels, 4, 4, dtype=torch.uint8)
    split = ArraySplit(images, torch.arange(classes), tuple(map(str, range(classes))), "made up")
    splits = Splits(split, split, {"num_classes": classes, "in_chans": channels})
    network = network_on_meta(config.model, {**Classification.network_kwargs(config), **splits.network})
    return complete(config, splits, network.config)


@pytest.mark.parametrize("recipe", list_recipes())
def test_recipes_have_a_header_and_say_nothing_unknown(recipe):
    config = resolve(recipe)
    assert "lambdanets train" in header(recipe)
    assert config.model.name in list_models()


@pytest.mark.parametrize("recipe", CLASSIFICATION)
def test_a_resolved_configuration_repeats_itself(recipe, tmp_path):
    config = resolve(recipe)
    config = completed(config)
    file = tmp_path / "config.yaml"
    file.write_text(as_yaml(config))
    assert resolve(file) == config
    assert config.model.changes["num_classes"] == 7
    assert len(config.data.mean) == len(config.data.std) == 3


@pytest.mark.parametrize("recipe", CLASSIFICATION)
def test_any_recipe_takes_any_number_of_channels(recipe):
    config = resolve(recipe)
    for channels in (1, 3):
        data = completed(config, channels=channels).data
        assert len(data.mean) == len(data.std) == channels


def test_the_network_is_for_images_of_the_size_that_it_gets(tmp_path):
    with pytest.raises(ConfigError, match=r"model\.image_size=16, but data\.image_size=8"):
        train(resolve("digits", ["model.image_size=16"]), RunFolder(tmp_path))
    config = resolve("digits")
    file = tmp_path / "config.yaml"
    file.write_text(as_yaml(completed(config)))
    larger = resolve(file, ["data.image_size=16"])
    assert completed(larger).model.changes["image_size"] == 16


def test_data_is_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = resolve("cifar10", ["data.root=here/some.npz"])
    assert completed(config).data.root == str(tmp_path / "here" / "some.npz")
    config = resolve("cifar10", ["data.root=s3://there/some.npz"])
    assert completed(config).data.root == "s3://there/some.npz"


@pytest.mark.parametrize("name", ["resnet50", "lambda_resnet50", "lambda_resnet152"])
def test_all_networks_of_the_long_recipe_have_its_setup_and_dropout(name):
    config = resolve("imagenet-350", [f"model.name={name}"])
    network = completed(config).model.changes
    assert (network["setup"], network["dropout"]) == ("350", 0.3)
    small = resolve("imagenet-350", ["model.name=resnet14_small"])
    assert completed(small).model.changes["setup"] == "small"


def test_the_published_recipes():
    """../spec: the table of published hyperparameters, written down again."""
    ninety, long = resolve("imagenet-90"), resolve("imagenet-350")
    for config, epochs, decay in ((ninety, 90, 1e-4), (long, 350, 4e-5)):
        optim = config.optim
        assert (optim.optimizer, optim.momentum, optim.lr, optim.lr_batch) == ("sgd", 0.9, 0.1, 256)
        assert (optim.warmup_epochs, optim.weight_decay, optim.label_smoothing) == (5, decay, 0.1)
        assert (optim.ema_decay, optim.bn_decay) == (0.9999, 0.9999)
        assert (config.trainer.max_epochs, config.data.batch_size) == (epochs, 4096)
        assert (config.data.crop, config.data.flip) == ("resized", 0.5)
    assert (ninety.data.randaugment, long.data.randaugment) == (0, 15)
    network = completed(replace(long, model=replace(long.model, name="lambda_resnet270"))).model.changes
    assert (network["dropout"], network["drop_path"], network["setup"], network["image_size"]) == (0.3, 0.2, "350", 256)


def test_changes_come_last_and_files_between(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("optim: {lr: 0.5, momentum: 0.8}\nmodel: {k: 8}\n")
    config = resolve("digits", ["optim.lr=0.7", "seed=3", "data.scale=[0.5, 1]"], file)
    assert (config.optim.lr, config.optim.momentum, config.seed, config.model.changes["k"]) == (0.7, 0.8, 3, 8)
    assert config.data.scale == (0.5, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("data.bach_size=3", "unknown key data.bach_size; did you mean data.batch_size?"),
        ("trainer.max_epoch=3", "unknown key trainer.max_epoch; did you mean trainer.max_epochs?"),
        ("optm.lr=3", "unknown key optm; did you mean optim?"),
        ("model.widht=3", "unknown key model.widht; did you mean model.width?"),
        ("sed=3", "unknown key sed; did you mean seed?"),
        ("data.batch_size=many", "data.batch_size must be int, got 'many'"),
        ("data.batch_size=3.5", "data.batch_size must be int, got '3.5'"),
        ("optim.lr=fast", "optim.lr must be float, got 'fast'"),
        ("optim.nesterov=1", "optim.nesterov must be bool, got '1'"),
        ("optim.lr=-1", "optim.lr must be finite and not negative, got -1.0"),
        ("optim.ema_decay=1", "optim.ema_decay must be at least 0 and below 1"),
        ("optim.optimizer=adam", "optim.optimizer must be sgd or adamw, got 'adam'"),
        ("trainer.max_epochs=0", "trainer.max_epochs must be at least 1, got 0"),
        ("trainer.gradient_clip_val=-1", "trainer.gradient_clip_val must be above 0, got -1.0"),
        ("trainer.limit_train_batches=-3", "trainer.limit_train_batches must not be negative, got -3"),
        ("trainer.precision=bf16-mix", "got bf16-mix; did you mean bf16-mixed?"),
        ("trainer.profiler=simpel", "trainer.profiler must be simple or advanced"),
        ("data.std=[0.5, 0]", "data.std must be numbers above 0, got (0.5, 0.0)"),
        ("data.scale=[1, 0.5]", "data.scale must be two fractions in ascending order"),
        ("data.crop=round", "data.crop must be none or padded or resized, got 'round'"),
        ("batch_size=3", "unknown key batch_size; did you mean data.batch_size?"),
        ("task=detecting", "unknown task=detecting; choose from classification"),
        ("optim.schedule=cosin", "optim.schedule must be cosine or linear or step or constant, got 'cosin'"),
        ("optim.schedule=step", "optim.schedule=step needs optim.milestones"),
        ("optim.milestones=[3, 2]", "optim.milestones must be epochs in ascending order, got (3.0, 2.0)"),
        ("optim.warmup_steps=-1", "optim.warmup_steps must not be negative, got -1"),
        ("seed=-1", "seed must be at least 0 and below 2^32, got -1"),
        ("checkpoint_seconds=-5", "checkpoint_seconds must be at least 0, got -5.0"),
        ("checkpoint_seconds=nan", "checkpoint_seconds must be"),
        ("model.name=lambda_resnet5", "unknown model.name=lambda_resnet5; did you mean lambda_resnet50?"),
        ("model=lambda_resnet50", "model must be a section with keys"),
        ("optim.lr", "expected KEY=VALUE, such as trainer.max_epochs=1, got 'optim.lr'"),
    ],
)
def test_mistakes_are_named(change, message):
    with pytest.raises(ConfigError) as caught:
        resolve("digits", [change])
    assert message in str(caught.value)


def test_files_that_are_no_configuration_are_named(tmp_path):
    broken, listed, binary = tmp_path / "broken.yaml", tmp_path / "list.yaml", tmp_path / "binary.yaml"
    broken.write_text("optim: {lr: ")
    listed.write_text("- 1\n- 2\n")
    binary.write_bytes(b"\xff\xfe\x00")
    for file in (broken, listed, binary, tmp_path / "absent.yaml"):
        with pytest.raises(ConfigError, match=file.name):
            resolve(file)
    with pytest.raises(ConfigError, match=r"unknown recipe digit; choose from .*; did you mean digits"):
        resolve("digit")


def test_yaml_never_makes_objects(tmp_path):
    file = tmp_path / "evil.yaml"
    file.write_text(f"seed: !!python/object/apply:os.mkdir ['{tmp_path}/made']\n")
    with pytest.raises(ConfigError, match=r"evil\.yaml is not a valid YAML"):
        resolve(file)
    assert not (tmp_path / "made").exists()


def test_the_data_decides_what_it_knows():
    config = resolve("digits", ["model.num_classes=4"])
    with pytest.raises(ConfigError, match=r"model\.num_classes=4, but the data has 7"):
        completed(config)
    config = resolve("digits", ["data.mean=[0.1, 0.2]"])
    with pytest.raises(ConfigError, match="one number for each of 3 channels"):
        completed(config)
    config = resolve("digits", ["model.h=5"])
    with pytest.raises(ConfigError, match="h=5"):
        completed(config)


def test_trees_and_configurations_are_the_same():
    config = from_tree({})
    assert from_tree(to_tree(config)) == config
    assert from_tree(yaml.safe_load(as_yaml(config))) == config


@pytest.mark.parametrize("recipe", list_recipes())
def test_any_recipe_takes_any_network(recipe):
    for name, row in rows().items():
        config = resolve(recipe, [f"model.name={name}"])
        assert config.model.name == name
        assert config.model.changes.keys() <= {field.name for field in fields(row)}


def test_the_loss_of_accumulated_batches_is_that_of_a_batch(tmp_path):
    losses = []
    for name, batches in (("one", 1), ("four", 4)):
        changes = ("optim.lr=0", "data.limit=128", "data.batch_size=32", "trainer.max_epochs=1")
        more = (f"trainer.accumulate_grad_batches={batches}", "model.width=4", "trainer.profiler=simple")
        train(resolve("digits", [*changes, *more]), RunFolder(tmp_path / name))
        with RunFolder(tmp_path / name).metrics.open() as file:
            losses.append(float(next(csv.DictReader(file))["train_loss"]))
        assert any("profile" in path.name for path in (tmp_path / name).iterdir())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_devices_that_cannot_be_are_one_line(tmp_path):
    with pytest.raises(ConfigError, match=r"trainer: .*devices"):
        train(resolve("digits", ["trainer.accelerator=cpu", "trainer.devices=[0, 1]"]), RunFolder(tmp_path))


def test_another_kind_of_network_trains_by_the_same_recipe(tmp_path):
    changes = ("model.name=lambda_vit_micro_small", "data.limit=128", "trainer.max_epochs=1")
    result = train(resolve("digits", changes), RunFolder(tmp_path))
    assert result is not None
    assert result.description.model == "lambda_vit_micro_small"
    restored = restore(RunFolder(tmp_path))
    assert isinstance(restored.network, ViT)
    assert restored.complaints == []


def test_a_network_that_is_not_for_the_task_is_refused_before_training(tmp_path, monkeypatch):
    def refuse(*_):
        raise ValueError("it has no classes")

    monkeypatch.setattr(Classification, "check_network", refuse)
    with pytest.raises(ConfigError, match="does not fit the task classification: it has no classes"):
        train(resolve("digits"), RunFolder(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
