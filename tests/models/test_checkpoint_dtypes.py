"""A saved network comes back in the dtypes it was saved in; weights of others are refused, or converted on request."""

import json
import os
import signal
import warnings

import pytest
import torch
from safetensors.torch import load_file, save_file

from lambdanets import create_model
from lambdanets.files import sha256
from lambdanets.models import ResNet, ViT, load_model
from lambdanets.models.checkpoint import CheckpointError

pytestmark = pytest.mark.unchecked


def network():
    torch.manual_seed(0)
    return create_model("lambda_resnet14_small", width=4, h=2, k=4, num_classes=3)


@pytest.fixture
def folder(tmp_path):
    network().save_pretrained(tmp_path)
    return tmp_path


def edit(file, without=(), **changes):
    description = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps({name: value for name, value in description.items() if name not in without}))


def reweigh(folder, change):
    """Other weights with the hash that belongs to them."""
    tensors = {name: change(name, tensor) for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    edit(folder / "config.json", sha256=sha256(folder / "model.safetensors"))


def cast(dtype, part=""):
    return lambda name, tensor: tensor.to(dtype) if tensor.is_floating_point() and part in name else tensor


def dtypes(model):
    return {tensor.dtype for tensor in model.state_dict().values() if tensor.is_floating_point()}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_configuration_says_the_dtype(folder, dtype):
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float32"
    network().to(dtype).save_pretrained(folder)
    assert json.loads((folder / "config.json").read_text())["dtype"] == str(dtype).removeprefix("torch.")
    assert dtypes(load_model(folder)) == {dtype}


def test_parts_in_other_dtypes_come_back(folder):
    model = network().bfloat16()
    model.stem[1].float()
    model.classifier.double()
    model.save_pretrained(folder)
    loaded = load_model(folder)
    assert all(loaded.state_dict()[name].dtype == t.dtype for name, t in model.state_dict().items())
    reweigh(folder, cast(torch.bfloat16))
    with pytest.raises(CheckpointError, match=r"stem.1.weight has the dtype bfloat16, not float32; .*, and 5 more"):
        load_model(folder)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.float8_e4m3fn])
@pytest.mark.parametrize("part", ["", "classifier.bias"])
def test_other_weights_are_refused_or_converted(folder, dtype, part):
    name = str(dtype).removeprefix("torch.")
    reweigh(folder, cast(dtype, part))
    with pytest.raises(CheckpointError, match=rf"model.safetensors does .* has the dtype {name}, not float32; dtype= "):
        load_model(folder)
    assert dtypes(load_model(folder, dtype=torch.float32)) == {torch.float32}
    assert dtypes(ResNet.from_pretrained(folder, dtype=torch.bfloat16)) == {torch.bfloat16}


def test_dtype_converts_what_was_saved(folder):
    half = load_model(folder, dtype=torch.float16)
    for name, tensor in load_model(folder).state_dict().items():
        wanted = tensor.half() if tensor.is_floating_point() else tensor
        assert torch.equal(half.state_dict()[name], wanted)
    with pytest.raises(TypeError, match=r"must be a floating-point dtype of torch, got dtype=torch\.int64"):
        load_model(folder, dtype=torch.int64)
    with pytest.raises(TypeError, match="dtype must be a floating-point dtype of torch, got dtype='float16'"):
        load_model(folder, dtype="float16")


@pytest.mark.parametrize(
    ("part", "dtype", "message"),
    [
        ("num_batches_tracked", torch.float32, "num_batches_tracked has the dtype float32, not int64"),
        ("num_batches_tracked", torch.int32, "num_batches_tracked has the dtype int32, not int64"),
        ("classifier.bias", torch.int64, "classifier.bias has the dtype int64, not a floating-point dtype"),
        ("classifier.bias", torch.bool, "classifier.bias has the dtype bool, not a floating-point dtype"),
        ("classifier.bias", torch.complex64, "classifier.bias has the dtype complex64, not a floating-point dtype"),
    ],
)
def test_counts_are_counts_and_weights_are_weights(folder, part, dtype, message):
    reweigh(folder, lambda name, tensor: tensor.to(dtype) if part in name else tensor)
    for options in ({}, {"dtype": torch.float32}):
        with pytest.raises(CheckpointError, match=message):
            load_model(folder, **options)
    edit(folder / "config.json", without=["dtype"])
    with pytest.raises(CheckpointError, match=message):
        load_model(folder)


def test_files_of_older_versions_load_as_they_are_and_say_so(folder):
    edit(folder / "config.json", without=["dtype"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dtypes(load_model(folder)) == {torch.float32}
    reweigh(folder, cast(torch.bfloat16))
    with pytest.warns(
        UserWarning, match=r"model.safetensors holds bfloat16, and config.json, of an older version, does"
    ):
        assert dtypes(load_model(folder)) == {torch.bfloat16}
    reweigh(folder, cast(torch.float8_e5m2))
    with pytest.raises(
        CheckpointError, match=r"has the dtype float8_e5m2, not one of float32, float64, bfloat16, float16"
    ):
        load_model(folder)


@pytest.mark.parametrize("changes", [{"dtype": None}, {"dtype": ["float32"]}, {"other_dtypes": ["stem"]}])
def test_a_dtype_that_is_none(folder, changes):
    edit(folder / "config.json", **changes)
    with pytest.raises(CheckpointError, match=r"config.json is damaged: it must name the dtype"):
        load_model(folder)


def test_weights_that_are_none(folder):
    tensors = load_file(folder / "model.safetensors")
    for changed, message in [
        (
            {name: t for name, t in tensors.items() if "classifier" not in name},
            "classifier.weight is missing, and 1 more",
        ),
        ({**tensors, "other": torch.zeros(1)}, "other is not a part of the network"),
        ({**tensors, "classifier.bias": torch.zeros(4)}, r"classifier.bias has the shape \(4,\), not \(3,\)"),
    ]:
        save_file(changed, folder / "model.safetensors")
        edit(folder / "config.json", sha256=sha256(folder / "model.safetensors"))
        with pytest.raises(CheckpointError, match=f"does not hold what config.json describes: {message}"):
            load_model(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "device", "large"])
def test_what_would_be_read_for_ever(folder, name, kind):
    file = folder / name
    if kind == "large":
        os.truncate(file, 2**40)  # sparse
    else:
        file.unlink()
        os.mkfifo(file) if kind == "pipe" else file.symlink_to("/dev/zero")
    signal.alarm(60)  # whose default ends the tests
    with pytest.raises(CheckpointError, match=rf"{name} (cannot be read: it is a {kind},|cannot be read: it has|has) "):
        load_model(folder)
    signal.alarm(0)


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        ("resnet14_small", {"blocks": (1, 1, 1001, 1)}),
        ("resnet14_small", {"blocks": (10**9, 1, 1, 1)}),
        ("vit_tiny_small", {"depth": 10**9}),
    ],
)
def test_no_network_is_built_for_ever(config, changes):
    (field,) = changes
    with pytest.raises(ValueError, match=rf"{field} must be at most 1000, got {field}=1"):
        create_model(config, **changes)


def test_a_link_to_a_file_is_that_file(folder, tmp_path):
    """As the Hub's cache has them."""
    (tmp_path / "links").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "links" / name).symlink_to(folder / name)
    assert isinstance(load_model(tmp_path / "links"), ResNet)
    with pytest.raises(CheckpointError, match="holds a ResNet, not a ViT"):
        ViT.from_pretrained(tmp_path / "links")
