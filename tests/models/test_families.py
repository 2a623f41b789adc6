"""A new family works everywhere from one line in the table, and every family keeps what the table promises."""

import json
from dataclasses import asdict, dataclass

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule

from lambdanets import create_model, list_models
from lambdanets.cli.main import main
from lambdanets.cost import count, profile, totals
from lambdanets.interop import timm_models
from lambdanets.interop.export import export
from lambdanets.models import FAMILIES, CheckpointError, Family, Network, NetworkConfig, ResNet, load_model
from lambdanets.models.families import rows
from lambdanets.models.network import run_block
from lambdanets.models.transformer_blocks import EncoderBlock
from lambdanets.runs import list_recipes, resolve
from lambdanets.train.strategies import separate_blocks, shard


@dataclass(frozen=True, kw_only=True)
class ToyConfig(NetworkConfig):
    """No images, no classes."""

    vocabulary: int = 11
    context: int = 7
    d: int = 12
    depth: int = 3


class Toy(Network):
    """Scores of the next token."""

    def __init__(self, config: ToyConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.d)
        self.layers = nn.ModuleList(
            EncoderBlock(config.d, mixer_options={"h": 3, "causal": True}) for _ in range(config.depth)
        )
        self.scores = nn.Linear(config.d, config.vocabulary)

    def blocks(self) -> list[nn.Module]:
        return [*self.layers]

    def example_inputs(self, b, size=None):
        return (torch.randint(self.config.vocabulary, (b, self.config.context if size is None else size)),)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.layers:
            x = run_block(self, block, x)
        return self.scores(x)


class Undivided(Toy):
    """The same without a declaration."""

    def blocks(self) -> list[nn.Module]:
        return []


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setitem(FAMILIES, "Toy", Family(ToyConfig, Toy, {"toy": ToyConfig(), "toy_deep": ToyConfig(depth=5)}))


def test_a_new_family_is_built_by_name():
    assert list_models()[-2:] == ["toy", "toy_deep"]
    model = create_model("toy_deep", d=6)
    assert type(model) is Toy
    assert model.config == ToyConfig(depth=5, d=6)
    assert model(*model.example_inputs(2)).shape == (2, 7, 11)
    with pytest.raises(ValueError, match="toy: unknown option image_size; see ToyConfig"):
        create_model("toy", image_size=32)


def test_a_new_family_is_saved_and_loaded(tmp_path):
    model = create_model("toy", d=6).eval()
    model.save_pretrained(tmp_path)
    description = json.loads((tmp_path / "config.json").read_text())
    assert (description["architecture"], description["config"]) == ("Toy", asdict(model.config))
    (tokens,) = model.example_inputs(3)
    for loaded in (load_model(tmp_path), Toy.from_pretrained(tmp_path)):
        assert loaded.config == model.config
        assert loaded(tokens).equal(model(tokens))
    assert "image-classification" not in (tmp_path / "README.md").read_text()
    with pytest.raises(CheckpointError, match="holds a Toy, not a ResNet"):
        ResNet.from_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="files hold ResNet and ViT and Toy, not what a Undivided may add"):
        Undivided(ToyConfig()).save_pretrained(tmp_path)


def test_the_tags_of_an_image_classifier_stay(tmp_path):
    create_model("vit_micro_small", depth=1).save_pretrained(tmp_path)
    card = (tmp_path / "README.md").read_text()
    tags = card[card.index("tags:") : card.rindex("---")].split()
    assert tags == ["tags:", "-", "image-classification", "-", "lambda-networks", "-", "model_hub_mixin"]


def test_declared_blocks_are_checkpointed():
    model = create_model("toy").train()
    (tokens,) = model.example_inputs(5)
    gradients, kept = [], []
    for enable in (False, True):
        model.set_grad_checkpointing(enable)
        model.zero_grad()
        model(tokens).square().sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
        kept.append(profile(model, tokens, rounds=1)[-1].activation_bytes)
    assert all(map(torch.equal, *gradients))
    assert kept[1] < kept[0] / 2
    with pytest.raises(ValueError, match="Undivided: gradient checkpointing needs blocks"):
        Undivided(ToyConfig()).set_grad_checkpointing()


def test_timm_is_offered_images_only():
    assert timm_models.image_models() == [name for name in list_models() if not name.startswith("toy")]
    with pytest.raises(ValueError, match="toy: timm's registry holds image classifiers, got a Toy"):
        timm_models.entry_point("toy")


def test_a_new_family_is_counted_and_profiled(capsys):
    model = create_model("toy")
    *stages, whole = profile(model, model.example_inputs(2, 5), rounds=1)
    assert [stage.name for stage in stages] == ["embedding", "layers", "scores"]
    assert (whole.parameters, whole.flops) == totals(count(model, (2, 5), torch.int64))
    assert stages[2].flops == 2 * 2 * 5 * 12 * 11
    main(["profile", "toy", "--batch", "2", "--rounds", "1", "--set", "context=5"])
    assert "toy, inputs of 2 x 5" in capsys.readouterr().out


@pytest.mark.unchecked
@pytest.mark.parametrize("extension", ["pt2", "onnx"])
def test_a_new_family_is_exported(extension, tmp_path):
    if extension == "onnx":
        pytest.importorskip("onnxruntime")
    model = create_model("toy").eval()
    assert export(model, tmp_path / f"toy.{extension}").difference < 1e-4
    with pytest.raises(ValueError, match="in_chans is for networks that take images, got in_chans=3, Toy"):
        export(model, tmp_path / f"other.{extension}", in_chans=3)


class Undeclared(Toy):
    """A network that does not say what it takes."""

    example_inputs = Network.example_inputs


def test_undeclared_inputs_are_named(tmp_path):
    with pytest.raises(ValueError, match="Undeclared does not declare example_inputs"):
        export(Undeclared(ToyConfig()), tmp_path / "toy.pt2")


@pytest.mark.parametrize("recipe", list_recipes())
def test_recipes_take_a_new_family(recipe):
    config = resolve(recipe, ["model.name=toy", "model.d=24"])
    assert config.model.name == "toy"
    assert config.model.changes == {"d": 24}


def test_rows_belong_to_one_family():
    assert len(rows()) == sum(len(family.rows) for family in FAMILIES.values())
    for name, family in FAMILIES.items():
        assert family.network.__name__ == name
        assert {type(row) for row in family.rows.values()} == {family.config}


@pytest.mark.parametrize("name", [*list_models(), "toy"])
def test_declared_blocks_are_all_that_is_repeated(name):
    with torch.device("meta"):
        model = create_model(name)
    blocks = model.blocks()
    inside = {part for block in blocks for part in block.modules()}
    assert len(blocks) == len({*blocks}) > 1
    assert [m for m in model.modules() if m in {*blocks}] == blocks  # in the order of definition
    assert not any(block in {*other.modules()} for block in blocks for other in blocks if other is not block)
    kinds = {type(block) for block in blocks}
    assert not [m for m in model.modules() if type(m) in kinds and m not in blocks]
    outside = sum(p.numel() for m in model.modules() if m not in inside for p in m.parameters(recurse=False))
    assert outside < sum(p.numel() for p in model.parameters()) / 2


SMALL = {
    "lambda_resnet14_small": {"width": 4, "image_size": 8},
    "lambda_vit_micro_small": {"d": 12, "depth": 2, "h": 3, "image_size": 8},
    "toy": {},
}
SHARED = {"share_tables": True, "image_size": 8, "width": 4, "blocks": (1, 1, 2, 3)}


@pytest.mark.parametrize("name", SMALL)
def test_every_block_runs_once_in_order(name):
    model = create_model(name, **SMALL[name]).eval()
    calls = []
    for block in model.blocks():
        block.register_forward_hook(lambda block, *_: calls.append(block))
    model(*model.example_inputs(2))
    assert calls == model.blocks()


def test_blocks_that_share_parameters_are_not_sharded_alone():
    model = create_model("lambda_resnet14_small", **SHARED)
    # Layers see maps of 8; 8; 4, 2; 2, 1, 1: the stride of a stage comes after the layer of its first block.
    assert separate_blocks(model) == [model.stages[2][0]]
    model = Toy(ToyConfig())
    assert separate_blocks(model) == model.blocks()
    model.scores.weight = model.embedding.weight  # shared outside the blocks
    assert separate_blocks(model) == model.blocks()
    model.scores.bias = model.layers[1].feed.norm.bias
    assert separate_blocks(model) == [model.layers[0], model.layers[2]]
    assert separate_blocks(nn.Sequential(nn.Linear(2, 2))) == separate_blocks(Undivided(ToyConfig())) == []


@pytest.fixture
def mesh():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    distributed.destroy_process_group()


@pytest.mark.unchecked
@pytest.mark.parametrize("name", [*SMALL, "shared"])
def test_sharding_changes_no_gradient(name, mesh):
    torch.manual_seed(0)
    model = create_model("lambda_resnet14_small", **SHARED) if name == "shared" else create_model(name, **SMALL[name])
    inputs = model.example_inputs(4)
    whole = gradients(model, inputs)
    shared = aliases(model)
    model.zero_grad()
    shard(model, mesh)
    assert [isinstance(block, FSDPModule) for block in model.blocks()].count(True) == len(separate_blocks(model))
    sharded = gradients(model, inputs)
    assert aliases(model) == shared
    assert bool(shared) == (name == "shared")
    assert whole.keys() == sharded.keys()
    for key, gradient in whole.items():
        torch.testing.assert_close(sharded[key].full_tensor(), gradient)


def gradients(model, inputs):
    model(*inputs).square().mean().backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def aliases(model):
    """Names of parameters that have another name already."""
    return {name for name, _ in model.named_parameters(remove_duplicate=False)} - dict(model.named_parameters()).keys()
