"""Exported files answer as the network does, with standard operators only, or are not written."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

from compare import SWEEP, error
from lambdanets import create_model
from lambdanets.bench.networks import settle
from lambdanets.interop.export import ExportError, export, onnx_nodes, relative_difference
from lambdanets.kernels import unavailable
from lambdanets.models import Lambda, ResNet
from lambdanets.models.families import rows
from lambdanets.models.resnet_config import RESNETS
from lambdanets.ops.plans import PLANS

TINY = {"blocks": (1, 1, 1, 1), "image_size": 8, "num_classes": 7}  # with and without a stride


def shortened(config):
    """Few blocks and small images, but every kind of block that a network has."""
    blocks = tuple(1 + character.isdigit() for character in config.placement)
    placement = "".join("1" if character.isdigit() else character for character in config.placement)
    size = 8 if config.setup == "small" else 37
    return replace(config, blocks=blocks, placement=placement, image_size=size, num_classes=7, drop_path=0.2)


# Names that differ in depth alone are the same when they are short.
KINDS = {shortened(RESNETS[name]): name for name in reversed(RESNETS)}
every_kind = pytest.mark.parametrize("config", KINDS, ids=KINDS.values())


def lively(model):
    """With residuals that do not begin at zero, as what they hide would not be compared, and statistics that fit."""
    model = settle(model, images(model, 31)).eval()
    with torch.no_grad():
        y = model(images(model, 5))
    assert y.std(0).max() > 0.1 * y.abs().max()  # it looks at the images
    return model


def images(model, b):
    side = model.config.image_size
    return torch.randn(b, model.config.in_chans, side, side)


def check_pt2(model, path):
    """What a program does that loads the file: other batches than those that export has tried."""
    exported = export(model, path)
    program = torch.export.load(path)
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert exported.operators == len(targets)
    assert exported.bytes == path.stat().st_size
    assert all(target.startswith(("aten.", "<built-in function ")) for target in targets), targets
    with torch.no_grad():
        for b in (3, 1):
            x = images(model, b)
            assert error(program.module()(x), model(x)) < 1e-5


@pytest.mark.unchecked
@every_kind
def test_pt2_equals_every_network(config, tmp_path):
    check_pt2(lively(ResNet(config)), tmp_path / "network.pt2")


@pytest.mark.unchecked
@pytest.mark.parametrize("name", [name for name in rows() if SWEEP or name == "lambda_resnet101"])
@pytest.mark.parametrize(("ending", "tolerance"), [("pt2", 1e-5), ("onnx", 1e-4)])
def test_networks_of_full_depth_are_exported(name, ending, tolerance, tmp_path):
    """Narrow, but with every block; all of them take minutes."""
    torch.manual_seed(0)
    narrow = dict(width=8, image_size=33) if name in RESNETS else dict(d=24, image_size=32)
    model = lively(create_model(name, num_classes=7, **narrow))
    assert export(model, tmp_path / f"network.{ending}").difference <= tolerance


@pytest.mark.unchecked
@pytest.mark.parametrize(
    "changes",
    [{"u": 4, "in_chans": 1}, {"scope": None, "share_tables": True}, {"terms": "content"}, {"terms": "position"}],
    ids=str,
)
def test_pt2_equals_every_option(changes, tmp_path):
    check_pt2(lively(create_model("lambda_resnet14_small", **TINY, **changes)), tmp_path / "network.pt2")


@pytest.mark.unchecked
@pytest.mark.parametrize("plan", PLANS)
def test_pt2_has_standard_operators_whatever_plan_is_forced(plan, tmp_path):
    if plan == "native" and unavailable() is not None:
        pytest.skip("no kernels")
    model = create_model("lambda_resnet14_small", **TINY, placement="CCCL", middle=Lambda(k=3, plan=plan))
    check_pt2(lively(model), tmp_path / "network.pt2")


@pytest.mark.unchecked
@pytest.mark.parametrize(
    "config",
    [
        replace(RESNETS["lambda_resnet26_small"], **TINY),
        replace(RESNETS["lambda_resnet26_small"], **TINY, scope=None, u=4),
        shortened(RESNETS["lambda_resnet101"]),
        shortened(RESNETS["resnet50"]),
    ],
    ids=["lambda", "global, u=4", "hybrid", "convolutional"],
)
def test_onnx_equals_the_network_in_another_runtime(config, tmp_path, capfd):
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    model = lively(ResNet(config))
    path = tmp_path / "network.onnx"
    exported = export(model, path)
    assert capfd.readouterr() == ("", "")  # torch.onnx likes to talk
    assert list(tmp_path.iterdir()) == [path]
    graph = onnx.load(path, load_external_data=False)
    assert [(opset.domain, opset.version) for opset in graph.opset_import] == [("", exported.opset)]
    assert exported.operators == len(graph.graph.node)
    assert graph.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "b"
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for b in (3, 1):
        x = images(model, b)
        (y,) = session.run(["output"], {"images": x.numpy()})
        with torch.no_grad():
            assert error(torch.from_numpy(y), model(x)) < 1e-4


class Network(nn.Module):
    """As small as networks get: `forward` multiplies each image by a weight."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(3.0))
        self.parts = nn.ModuleList([nn.BatchNorm2d(3), nn.Dropout(0.9)])

    def forward(self, x):
        return self.parts[1](self.parts[0](x)) * self.weight


class Wrong(Network):
    """Another network when it is exported."""

    def forward(self, x):
        return super().forward(x) * (1.01 if torch.compiler.is_exporting() else 1.0)


class WrongForOne(Network):
    """Wrong only for the batch that nobody traces."""

    def forward(self, x):
        return super().forward(x) + (0.1 if not torch.compiler.is_exporting() and x.shape[0] == 1 else 0.0)


class Cancelling(Network):
    """Loses digits that its export keeps."""

    def forward(self, x):
        y = super().forward(x)
        return y if torch.compiler.is_exporting() else (y + 1e4) - 1e4


@torch.library.custom_op("lambdanets_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


@twice.register_fake
def _(x):
    return torch.empty_like(x)


class Pair(Network):
    def forward(self, x):
        return super().forward(x), x


class Foreign(Network):
    def forward(self, x):
        return twice(super().forward(x))


@pytest.mark.unchecked
@pytest.mark.parametrize("suffix", ["onnx", "pt2"])
@pytest.mark.parametrize(
    ("network", "message"),
    [
        (Wrong, "would differ from the network by 1.0e-02"),
        (WrongForOne, "would differ from the network by"),
        (Foreign, "not torch's own: lambdanets_tests.twice.default"),
    ],
    ids=lambda x: x.__name__ if isinstance(x, type) else "",
)
def test_a_wrong_export_is_no_file(network, message, suffix, tmp_path):
    if suffix == "onnx":
        pytest.importorskip("onnxruntime")
    with pytest.raises(ExportError, match=message):
        export(network(), tmp_path / f"network.{suffix}", size=5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.unchecked
def test_a_wrong_export_leaves_the_older_file(tmp_path):
    path = tmp_path / "network.pt2"
    path.write_bytes(b"older")
    with pytest.raises(ExportError):
        export(Wrong(), path, size=5)
    assert path.read_bytes() == b"older"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.unchecked
@pytest.mark.parametrize("suffix", ["onnx", "pt2"])
def test_a_full_disk_is_an_error(suffix, tmp_path):
    """In a process of its own, which may write no file beyond a megabyte: torch's writer would have ended it."""
    path = tmp_path / f"network.{suffix}"
    program = (
        "import resource; from lambdanets import create_model; from lambdanets.interop.export import export;"
        "model = create_model('lambda_resnet14_small'); resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20));"
        f"export(model, {str(path)!r})"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 1, run.stderr
    assert "OSError: [Errno 27] File too large" in run.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.unchecked
def test_a_file_may_round_as_the_network_does(tmp_path):
    exported = export(Cancelling(), tmp_path / "network.pt2", size=5)
    assert 1e-5 < exported.difference < 1e-3


@pytest.mark.unchecked
@pytest.mark.parametrize("network", [Network, Wrong])
def test_the_network_stays_as_it_was(network, tmp_path):
    model = network().train()
    model.parts[0].eval()  # frozen
    state = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    try:
        export(model, tmp_path / "network.pt2", size=5)
    except ExportError:
        assert network is Wrong
    assert [part.training for part in model.modules()] == [True, True, False, True]
    assert model.weight.requires_grad
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.unchecked
def test_any_network_and_any_size(tmp_path):
    stages = []
    path = tmp_path / "network"
    exported = export(Network(), path, "pt2", size=(5, 7), in_chans=3, tell=stages.append)
    x = torch.randn(11, 3, 5, 7)
    with path.open("rb") as file:
        assert error(torch.export.load(file).module()(x), Network().eval()(x)) < 1e-6
    assert exported.opset is None
    assert str(exported).startswith(f"{path}: 0.0 MB, {exported.operators} operators, largest relative difference")
    assert len(stages) == 3


def test_differences():
    y = torch.tensor([1.0, -4.0])
    assert relative_difference(y, y) == 0.0
    assert relative_difference(y, torch.tensor([1.5, -4.0])) == 0.125
    assert relative_difference(torch.zeros(2), torch.zeros(2)) == 0.0
    assert relative_difference(y, torch.zeros(2)) == float("inf")
    assert not relative_difference(torch.tensor([torch.nan, 1.0]), y) <= 1.0


def test_foreign_nodes_are_found_wherever_they_are():
    helper = pytest.importorskip("onnx").helper

    def node(domain, **attributes):
        return helper.make_node(f"Of{domain}", [], ["y"], domain=domain, **attributes)

    inner = helper.make_graph([node("c", then_branch=helper.make_graph([node("d")], "g", [], []))], "g", [], [])
    function = helper.make_function("f", "F", [], [], [node("e")], [helper.make_opsetid("", 20)])
    graph = helper.make_graph([node("a"), node("b", body=inner)], "g", [], [])
    model = helper.make_model(graph, functions=[function])
    assert sorted(found.domain for found in onnx_nodes(model)) == ["a", "b", "c", "d", "e"]


@pytest.mark.unchecked
def test_mistakes_are_named(tmp_path):
    path = tmp_path / "network.pt2"
    tiny = create_model("lambda_resnet14_small", **TINY, scope=None)
    for model, arguments, message in [
        (Network(), {"path": tmp_path / "network"}, "must end with .onnx or .pt2, got .*network"),
        (Network(), {"path": path, "format": "pt"}, "format must be onnx or pt2, got format='pt'"),
        (Network(), {"path": tmp_path, "format": "pt2"}, "must be a file in a folder that can be written to"),
        (Network(), {"path": tmp_path / "no" / "network.pt2"}, "must be a file in a folder that can be written to"),
        (Network(), {"path": path}, "size must be given for Network"),
        (Network(), {"path": path, "size": 0}, "size=0"),
        (Network(), {"path": path, "size": 32.5}, "size=32.5"),
        (Network(), {"path": path, "size": "32"}, "size='32'"),
        (Network(), {"path": path, "size": (1, 2, 3)}, r"one integer or 2 of them, got size=\(1, 2, 3\)"),
        (Network(), {"path": path, "size": 5, "in_chans": 0}, "in_chans=0"),
        (Network().bfloat16(), {"path": path, "size": 5}, "float32, got torch.bfloat16"),
        (tiny, {"path": path, "size": 9}, "larger than its global"),
        (Pair(), {"path": path, "size": 5}, "must answer with one tensor, got tuple"),
        (Network().to("meta"), {"path": path, "size": 5}, "got one on the meta device"),
    ]:
        with pytest.raises(ValueError, match=message):
            export(model, **arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.unchecked
def test_what_onnx_lacks_is_one_line(tmp_path):
    pytest.importorskip("onnxruntime")

    class Running(nn.Module):
        def forward(self, x):
            return x.cummax(2).values

    with pytest.raises(ExportError, match=r"no ONNX for this network, pt2 may do: .*cummax[^\n]*$"):
        export(Running(), tmp_path / "n.onnx", size=5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.unchecked
def test_too_much_for_one_onnx_file(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr("lambdanets.interop.export.LARGEST_ONNX", 1)
    with pytest.raises(ExportError, match="GB of weights do not fit"):
        export(Network(), tmp_path / "network.onnx", size=5)


def test_importing_it_is_light():
    program = "import sys, lambdanets.interop.export; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"onnx", "onnxruntime", "onnxscript"} & set(run.stdout.split())
