"""What works without the packages of the extras, what names the extra it needs, and torchvision without operators."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Import names of what the extras bring, and only they.
EXTRAS = [
    "PIL",
    "datasets",
    "huggingface_hub",
    "lambda_networks",
    "lightning",
    "matplotlib",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "safetensors",
    "sklearn",
    "tensorboard",
    "timm",
    "torchmetrics",
    "torchvision",
    "yaml",
]
WITHOUT_EXTRAS = f"""
import contextlib, io, json, sys
from importlib.machinery import PathFinder

class WithoutExtras(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {EXTRAS} else super().find_spec(name, path, target)

sys.meta_path = [WithoutExtras if finder is PathFinder else finder for finder in sys.meta_path]
from lambdanets.cli.main import main

results = []
for command in json.loads(sys.argv[1]):
    code, out, err = 0, io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(command)
        except SystemExit as ended:
            code = ended.code
    results.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(results))
"""
SMALL = "lambda_resnet14_small --set width=4 --set k=4 --set h=2 --size 8"
BASE = ("info", "plan 5 --patience 0", f"profile {SMALL} --rounds 1 --batch 2", "paper 2", f"export {SMALL} -o net.pt2")
NEEDED = {
    "train digits": "train",
    "predict latest image.png": "train",
    "bench training --quick": "train",
    "bench models --quick": "bench",
    "paper 2 --html page.html": "bench",
    f"export {SMALL} -o net.onnx": "export",
}


def run(program: str, *arguments: str, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-W", "always::UserWarning", "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


@pytest.fixture(scope="module")
def ended(tmp_path_factory) -> dict[str, tuple[int, str, str]]:
    """The code, output and errors of each command, all in one process: importing torch takes a second."""
    commands = [*BASE, *NEEDED]
    whole = run(
        WITHOUT_EXTRAS, json.dumps([command.split() for command in commands]), cwd=tmp_path_factory.mktemp("here")
    )
    assert whole.returncode == 0, whole.stderr
    return dict(zip(commands, json.loads(whole.stdout.splitlines()[-1]), strict=True))


@pytest.mark.parametrize("command", BASE)
def test_works_with_the_base_install(ended, command):
    code, out, err = ended[command]
    assert code == 0, err
    assert out
    assert "Warning" not in err


@pytest.mark.parametrize(("command", "extra"), NEEDED.items())
def test_names_the_extra_in_one_line(ended, command, extra):
    code, _, err = ended[command]
    assert code == 1
    said = [line for line in err.splitlines() if not line.endswith(" ...")]  # what an export does at the moment
    assert len(said) == 1
    assert said[0].startswith("lambdanets ")
    assert said[0].endswith(f'is not installed: pip install ".[{extra}]"')


def test_the_extras_exist_and_the_base_install_has_what_it_needs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"train", "bench", "hub", "export", "stream"} <= project["optional-dependencies"].keys()
    assert {"numpy", "rich"} <= {requirement.partition(">")[0] for requirement in project["dependencies"]}


WITHOUT_OPERATORS = """
import torch

def refuse(path):
    raise OSError(f"{path} was built for another torch")

torch.ops.load_library = refuse
"""
FAILS = "import torchvision"
WORKS = """
import lambdanets.runs
from lambdanets.data.images import ImageDataConfig
from lambdanets.data.images.transforms import for_training
from lambdanets.data.images.mixing import Mixing

config = ImageDataConfig(crop="padded", flip=0.5, randaugment=5)
print(for_training(config, 8)(torch.zeros(3, 16, 16, dtype=torch.uint8)).shape, len(Mixing(3, 0.2, 1.0).transforms))
"""


def test_torchvision_without_its_operators():
    """As its wheel for Linux is beside a torch for CPUs, unless tools/fix_torchvision_cpu.py has changed it."""
    assert "operator torchvision::nms does not exist" in run(WITHOUT_OPERATORS + FAILS).stderr
    ended = run(WITHOUT_OPERATORS + WORKS)
    assert ended.stdout == "torch.Size([3, 8, 8]) 2\n", ended.stderr
    assert "Warning" not in ended.stderr
