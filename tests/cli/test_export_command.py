"""`lambdanets export`, and MODEL and --set as all commands about networks take them."""

import sys

import pytest
import torch

from compare import error
from lambdanets import create_model
from lambdanets.cli.main import main
from lambdanets.interop.export import ExportError
from lambdanets.models import ResNet

pytestmark = pytest.mark.unchecked

MODEL = "lambda_resnet14_small"
TINY = ["--set", "blocks=(1, 1, 1, 1)", "--set", "image_size=8"]


def failure(capsys, *arguments: str, code: int = 2) -> str:
    """The line on stderr that the command ends with."""
    with pytest.raises(SystemExit) as ended:
        main(["export", *arguments])
    captured = capsys.readouterr()
    assert ended.value.code == code
    assert captured.out == ""
    assert captured.err.count("\n") == 1, "one line, not a usage or a traceback"
    assert captured.err.startswith("lambdanets export: ")
    return captured.err


def test_it_has_help(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["export", "--help"])
    assert ended.value.code == 0
    assert "usage: lambdanets export" in capsys.readouterr().out


def test_a_name_becomes_a_file_of_that_name(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(["export", MODEL, "--format", "pt2", "--size", "8x6", *TINY, "--set", "num_classes=3", "--set", "k=5"])
    captured = capsys.readouterr()
    assert captured.out.startswith(f"{MODEL}.pt2: ")
    assert "MB, " in captured.out
    assert captured.out.count("\n") == 1
    assert captured.err.count(" ...\n") == 3
    assert [path.name for path in tmp_path.iterdir()] == [f"{MODEL}.pt2"]
    assert torch.export.load(f"{MODEL}.pt2").module()(torch.randn(7, 3, 8, 6)).shape == (7, 3)


def test_the_file_says_which_format(capsys, tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    path = tmp_path / "network.onnx"
    main(["export", MODEL, "-o", str(path), *TINY])
    (opset,) = onnx.load(path).opset_import
    assert f", opset {opset.version}, largest relative difference to eager " in capsys.readouterr().out


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """With a saved network, in the working directory."""
    pytest.importorskip("huggingface_hub")
    pytest.importorskip("safetensors")
    monkeypatch.chdir(tmp_path)
    create_model(MODEL, blocks=(1, 1, 1, 1), image_size=8, num_classes=5).save_pretrained("mine")
    return tmp_path / "mine"


def test_a_folder_is_a_saved_network(folder):
    main(["export", "mine/", "--format", "pt2"])
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        expected = ResNet.from_pretrained(folder)(x)
        assert error(torch.export.load("mine.pt2").module()(x), expected) < 1e-5


def test_mistakes_with_a_folder_are_one_line(capsys, folder, monkeypatch):
    assert "--set applies to the name of a model, but mine is a folder" in failure(capsys, "mine", "--set", "k=8")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert "model.safetensors" in failure(capsys, "mine")
    assert "config.json" in failure(capsys, ".")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.delitem(sys.modules, "lambdanets.models.hub")
    monkeypatch.delattr("lambdanets.models.hub")
    assert 'pip install ".[hub]"' in failure(capsys, "mine", code=1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "required: MODEL"),
        (("resnet51",), "no model or folder 'resnet51'; models are resnet26, "),
        ((MODEL, "--set", "k"), "must be like k=8, got 'k'"),
        ((MODEL, "--set", "k=wide"), "--set k must be int, got 'wide'"),
        ((MODEL, "--set", "k=0"), "k must be a positive integer, got k=0"),
        ((MODEL, "--set", "blocks=3"), "--set blocks must be tuple[int, int, int, int], got '3'"),
        ((MODEL, "--set", "placement=CCL"), "placement='CCL'"),
        ((MODEL, "--set", "setup=91"), "--set setup must be 90 or 350 or small, got '91'"),
        ((MODEL, "--set", "scopes=7"), "unknown option scopes"),
        ((MODEL, "--format", "jpeg"), "invalid choice: 'jpeg'"),
        ((MODEL, "--size", "8x8x8"), "must be like 224 or 224x160, got '8x8x8'"),
        ((MODEL, "--size", "0"), "must be like 224 or 224x160, got '0'"),
        ((MODEL, "-o", "network.jpeg"), "must end with .onnx or .pt2, got network.jpeg"),
        ((MODEL, "-o", "no/such/folder/n.onnx"), "can be written to, got no/such/folder/n.onnx"),
        ((MODEL, "--set", "scope=None", "--size", "33"), "larger than its global table"),
    ],
)
def test_a_mistake_is_one_line(capsys, arguments, says):
    assert says in failure(capsys, *arguments)


def test_a_wrong_export_is_one_line(capsys, monkeypatch):
    def fail(*_, **__):
        raise ExportError("it would differ")

    monkeypatch.setattr("lambdanets.interop.export.export", fail)
    assert failure(capsys, MODEL, code=1) == "lambdanets export: it would differ\n"


def test_a_missing_package_is_one_sentence(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    said = failure(capsys, MODEL, code=1)
    assert said == 'lambdanets export: onnx is not installed: pip install ".[export]"\n'
