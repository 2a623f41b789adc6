"""A saved network comes back whole, and a damaged one is one error that names the file."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from safetensors import SafetensorError
from torch import nn

from lambdanets import create_model
from lambdanets.bench.networks import settle
from lambdanets.files import sha256
from lambdanets.models import ResNet
from lambdanets.models.checkpoint import CheckpointError, sha256_of_config
from lambdanets.models.middle import Lambda
from lambdanets.models.resnet_config import RESNETS

SMALL = dict(blocks=(1, 1, 1, 1), image_size=32, num_classes=5)


def small(**changes):
    torch.manual_seed(0)
    model = create_model("lambda_resnet26_small", **{**SMALL, **changes})
    for tensor in [*model.parameters(), *model.buffers()]:
        if tensor.is_floating_point():
            tensor.data.uniform_(0.5, 1.5)
    return model


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"share_tables": True, "placement": "CC1L", "blocks": (1, 1, 2, 2)},
        {"setup": "350", "se": True, "placement": "CCLL", "scope": None, "u": 2, "num_classes": 0},
        {"layer": "local", "layer_options": {"scope": (3, 5)}},
    ],
    ids=["plain", "shared", "350", "options"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_what_was_saved_comes_back(tmp_path, changes, dtype):
    model = small(**changes).to(dtype).to(memory_format=torch.channels_last)
    model.save_pretrained(tmp_path / "net")
    loaded = ResNet.from_pretrained(tmp_path / "net")
    assert loaded.config == model.config
    assert not loaded.training
    state = loaded.state_dict()
    assert state.keys() == model.state_dict().keys()
    assert all(state[name].equal(t) and state[name].dtype == t.dtype for name, t in model.state_dict().items())
    assert len(list(loaded.parameters())) == len(list(model.parameters()))  # what was shared is
    assert all(p.requires_grad for p in loaded.parameters())


def test_a_new_head_and_another_size_are_part_of_the_configuration(tmp_path):
    model = small(scope=None)
    model.reset_classifier(3)
    model.resize(40)
    model.save_pretrained(tmp_path)
    assert ResNet.from_pretrained(str(tmp_path))(torch.randn(1, 3, 40, 40)).shape == (1, 3)


def test_saving_again_replaces_the_network_and_leaves_the_rest(tmp_path):
    small().save_pretrained(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "README.md").write_text("my card")
    small(num_classes=3).save_pretrained(tmp_path)
    assert ResNet.from_pretrained(tmp_path).config.num_classes == 3
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "README.md").read_text() == "my card"
    assert {p.name for p in tmp_path.iterdir()} == {"config.json", "model.safetensors", "README.md", "notes.txt"}


def test_a_folder_may_be_on_a_disk_of_its_own(tmp_path, monkeypatch):
    """Files can be renamed inside it, not into it."""
    replace, folder = os.replace, tmp_path / "net"
    folder.mkdir()

    def on_one_disk(source, target):
        if folder in Path(source).parents and folder in Path(target).parents:
            return replace(source, target)
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("os.replace", on_one_disk)
    small().save_pretrained(folder)
    assert {path.name for path in folder.iterdir()} == {"config.json", "model.safetensors", "README.md"}


def test_a_failure_while_saving_leaves_the_old_network(tmp_path, monkeypatch):
    folder = tmp_path / "net"
    small().save_pretrained(folder)

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", fail)
    with pytest.raises(OSError, match="No space left"):
        small(num_classes=3).save_pretrained(folder)
    assert ResNet.from_pretrained(folder).config.num_classes == 5
    assert list(tmp_path.iterdir()) == [folder]


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise SafetensorError("No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", fail)
    with pytest.raises(CheckpointError, match=r"net cannot be written: No space left"):
        small().save_pretrained(tmp_path / "net")
    assert list(tmp_path.iterdir()) == []


def test_what_could_not_be_uploaded_is_saved(tmp_path, monkeypatch):
    def fail(self, **options):
        uploads.append(options)
        raise ConnectionError("no network")

    uploads = []
    monkeypatch.setattr("huggingface_hub.ModelHubMixin.push_to_hub", fail)
    with pytest.raises(ConnectionError) as caught:
        small().save_pretrained(tmp_path / "net", push_to_hub=True, private=True)
    assert "net is saved; the upload failed" in caught.value.__notes__[0]
    assert uploads == [{"repo_id": "net", "private": True}]
    assert ResNet.from_pretrained(tmp_path / "net").config.num_classes == 5
    assert small().save_pretrained(tmp_path / "net", repo_id="me/net") is None


def test_only_what_can_come_back_is_saved(tmp_path):
    class Mine(ResNet):
        pass

    with pytest.raises(CheckpointError, match="files hold ResNet and ViT, not what a Mine may add"):
        Mine(small().config).save_pretrained(tmp_path / "net")
    assert list(tmp_path.iterdir()) == []


def test_a_save_that_is_killed_while_it_writes_leaves_the_old_network(tmp_path):
    small().save_pretrained(tmp_path / "net")
    program = (
        "import sys, time, safetensors.torch; from lambdanets import create_model;"
        "safetensors.torch.save_file = lambda *_, **__: (print('saving', flush=True), time.sleep(60));"
        f"create_model('lambda_resnet14_small').save_pretrained({str(tmp_path / 'net')!r})"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "saving\n"
        process.send_signal(signal.SIGKILL)
    assert ResNet.from_pretrained(tmp_path / "net").config.num_classes == 5


def cut(file):
    file.write_bytes(file.read_bytes()[:-9])


def flip(file):
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(bytes(content))


def change(**fields):
    def apply(file):
        file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))

    return apply


def reconfigure(without=(), **fields):
    """As a program would that knows of the hash."""

    def apply(file):
        description = json.loads(file.read_text())
        description["config"].update(fields)
        for name in without:
            del description["config"][name]
        description["config_sha256"] = sha256_of_config(description["config"])
        file.write_text(json.dumps(description))

    return apply


def drop(file, name):
    description = json.loads(file.read_text())
    del description[name]
    file.write_text(json.dumps(description))


def edit(file):
    """By hand."""
    file.write_text(file.read_text().replace('"dropout": 0.0', '"dropout": 0.9'))


def into_a_folder(file):
    os.remove(file)
    file.mkdir()


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("model.safetensors", cut, r"model.safetensors is damaged or belongs to another network: its sha256 is"),
        ("model.safetensors", flip, r"model.safetensors is damaged"),
        ("model.safetensors", os.remove, r"model.safetensors is missing"),
        ("config.json", os.remove, r"config.json is missing"),
        ("config.json", cut, r"config.json is damaged"),
        ("config.json", lambda file: file.write_bytes(b"\xff\xfe"), r"config.json is damaged"),
        ("config.json", lambda file: file.write_text("[]"), r"config.json does not describe a network of lambdanets"),
        ("config.json", lambda file: file.write_text("{}"), r"config.json does not describe a network of lambdanets"),
        ("config.json", change(format=99), r"config.json has format 99, this version reads 1"),
        ("config.json", lambda file: drop(file, "sha256"), r"config.json is damaged: it has no sha256"),
        ("config.json", reconfigure(width=10**9), r"config.json does not describe a network of this version"),
        (
            "config.json",
            reconfigure(["blocks"]),
            r"config.json does not describe a network of this version: .*'blocks'",
        ),
        ("config.json", edit, r"config.json was changed after it was written"),
        ("config.json", into_a_folder, r"config.json cannot be read: Is a directory"),
        ("config.json", lambda file: file.write_text("[" * 100_000), r"config.json is damaged"),
        ("config.json", lambda file: file.write_text("1" * 5_000), r"config.json is damaged"),
        ("config.json", change(config=None), r"config.json is damaged: its config is None"),
        ("config.json", change(config=[1]), r"config.json is damaged: its config is \[1\]"),
        ("config.json", change(architecture="Foo"), r"architecture must be one of ResNet, ViT, got 'Foo'"),
        ("config.json", reconfigure(num_classes="10"), r"num_classes must be int, got num_classes='10'"),
        ("config.json", reconfigure(colour="red"), r"config.json does not describe .* 'colour'"),
        ("config.json", reconfigure(placement="XX"), r"config.json does not describe .* placement='XX'"),
        ("config.json", reconfigure(num_classes=7), r"model.safetensors does not hold what config.json describes"),
        (
            "config.json",
            reconfigure(blocks=[1, 1, 1, 2]),
            r"model.safetensors does not hold what config.json describes",
        ),
    ],
)
@pytest.mark.unchecked
def test_damage_is_one_error_that_names_the_file(tmp_path, name, damage, message):
    small().save_pretrained(tmp_path)
    damage(tmp_path / name)
    with pytest.raises(CheckpointError, match=message):
        ResNet.from_pretrained(tmp_path)


@pytest.mark.parametrize("name", RESNETS)
def test_networks_of_full_depth_come_back(tmp_path, name):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 33, 33)
    model = settle(create_model(name, width=8, image_size=33, num_classes=5), x).eval()
    model.save_pretrained(tmp_path)
    loaded = ResNet.from_pretrained(tmp_path)
    assert loaded.config == model.config
    assert all(map(torch.equal, loaded.state_dict().values(), model.state_dict().values()))
    assert torch.equal(loaded(x), model(x))
    assert loaded(x).isfinite().all()


def test_a_configuration_without_a_hash_is_read(tmp_path):
    """The first versions wrote none."""
    small().save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    description = json.loads(file.read_text())
    del description["config_sha256"]
    file.write_text(json.dumps(description))
    assert ResNet.from_pretrained(tmp_path).config.num_classes == 5


@pytest.mark.parametrize("name", ["/no/such/folder", "no/such/repository/at all"])
def test_a_name_that_is_nothing(name):
    with pytest.raises(CheckpointError, match="is neither a folder nor a repository"):
        ResNet.from_pretrained(name)


def test_a_pickle_is_not_opened(tmp_path):
    small().save_pretrained(tmp_path)
    torch.save(small().state_dict(), tmp_path / "model.safetensors")
    change(sha256=sha256(tmp_path / "model.safetensors"))(tmp_path / "config.json")
    with pytest.raises(CheckpointError, match="does not hold what"):
        ResNet.from_pretrained(tmp_path)


def test_a_folder_of_another_geometry_is_refused(tmp_path):
    """Weights belong to one configuration, and neither a file nor an argument can say otherwise."""
    for name, scope in (("one", (3, 5)), ("other", (5, 3))):
        model = small(layer="vector", layer_options={"scope": scope})
        nn.init.constant_(model.classifier.bias, scope[0])
        model.save_pretrained(tmp_path / name)
    with pytest.raises(TypeError, match="from_pretrained: unexpected argument layer_options"):
        ResNet.from_pretrained(tmp_path / "one", layer_options={"scope": (5, 3)})
    one, other = (ResNet.from_pretrained(tmp_path / name) for name in ("one", "other"))
    with pytest.raises(RuntimeError, match=r"relate\.weight was saved with scope=\(3, 5\), but this Vector2d has"):
        other.load_state_dict(one.state_dict())
    os.replace(tmp_path / "other" / "config.json", tmp_path / "one" / "config.json")
    with pytest.raises(CheckpointError, match="belongs to another network"):
        ResNet.from_pretrained(tmp_path / "one")


def test_other_options_and_places_are_refused(tmp_path):
    small().save_pretrained(tmp_path / "net")
    with pytest.raises(TypeError, match="from_pretrained: unexpected argument num_classes"):
        ResNet.from_pretrained(tmp_path / "net", num_classes=3)
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="is a file, not a folder"):
        small().save_pretrained(tmp_path / "file")
    with torch.device("meta"):
        model = create_model("resnet14_small")
    with pytest.raises(CheckpointError, match="meta device"):
        model.save_pretrained(tmp_path / "meta")
    assert not (tmp_path / "meta").exists()


def replaced(part, by):
    def change(model):
        model.set_submodule(part, by)

    return change


def tie(model):
    model.stages[1][0].middle[0].table.weight = model.stages[2][0].middle[0].table.weight


def other_eps(model):
    model.stem[1].eps = 0.1


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (replaced("classifier", nn.Linear(2048, 9)), "classifier.weight"),
        (replaced("stem.2", nn.GELU()), "stem.2"),
        (replaced("stages.1.0.middle.1", nn.AvgPool2d(2, 2)), "stages.1.0.middle.1"),
        (other_eps, "stem.1"),
        (tie, "stages.2.0.middle.0.table.weight"),
    ],
    ids=["head", "activation", "pool", "eps", "tied"],
)
def test_what_was_changed_by_hand_is_neither_saved_nor_uploaded(tmp_path, monkeypatch, change, part):
    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", Hub)
    model = small(image_size=64)  # tables of the last two stages but one are of one size
    change(model)
    with pytest.raises(CheckpointError, match=rf"{part} is not what .* changed by hand"):
        model.save_pretrained(tmp_path / "net")
    assert not list(tmp_path.iterdir())
    with pytest.raises(CheckpointError, match=rf"{part} is not what .* changed by hand"):
        model.push_to_hub("me/net")
    assert not Hub.uploads


class Hub:
    """In the place of huggingface_hub's: notes what it is given."""

    uploads: ClassVar[list] = []

    def __init__(self, **_):
        pass

    def create_repo(self, repo_id, **_):
        self.uploads.append(repo_id)
        return SimpleNamespace(repo_id=repo_id)

    def upload_folder(self, *, repo_id, folder_path, **_):
        self.uploads.append((repo_id, {path.name for path in Path(folder_path).iterdir()}))
        return "address"


def test_what_is_uploaded_is_what_is_saved(monkeypatch):
    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", Hub)
    monkeypatch.setattr(Hub, "uploads", [])
    assert small().push_to_hub("me/net", private=True) == "address"
    assert Hub.uploads == ["me/net", ("me/net", {"config.json", "model.safetensors", "README.md"})]


def test_a_middle_of_its_own_is_not_saved(tmp_path):
    with pytest.raises(CheckpointError, match="its own `middle`"):
        create_model("lambda_resnet26_small", middle=Lambda(k=8), **SMALL).save_pretrained(tmp_path)
    assert not list(tmp_path.iterdir())


def test_batch_norms_of_many_processes_are_saved_as_those_of_one(tmp_path):
    nn.SyncBatchNorm.convert_sync_batchnorm(small()).save_pretrained(tmp_path)
    assert type(ResNet.from_pretrained(tmp_path).stem[1]) is nn.BatchNorm2d


def test_unknown_options_are_refused_and_the_card_grants_nothing(tmp_path):
    with pytest.raises(
        TypeError, match=r"save_pretrained: unexpected argument push_to_hubb; valid arguments are .*private"
    ):
        small().save_pretrained(tmp_path / "net", push_to_hubb=True)
    assert not list(tmp_path.iterdir())
    small().save_pretrained(tmp_path / "net")
    assert "license" not in (tmp_path / "net" / "README.md").read_text()
