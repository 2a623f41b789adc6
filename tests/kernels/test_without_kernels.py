"""Without a usable library everything works as before, and the reason is told. In processes of their own: the library
is loaded once, and a damaged one might take its process with it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lambdanets
from lambdanets.kernels import unavailable
from lambdanets.kernels.build import LIBRARY, CannotBuildError, compiler

PACKAGE = Path(lambdanets.__file__).parent
USE = """
import torch
import lambdanets
from lambdanets.kernels import unavailable
from lambdanets.ops import Grid
from lambdanets.ops.plans import PLANS, Inputs, Problem

layer = lambdanets.LambdaLayer2d(8, 12, k=4, h=3, scope=5)
x = torch.randn(2, 8, 7, 5, requires_grad=True)
layer(x).square().sum().backward()
layer.eval()(x).sum().backward()
assert x.grad.isfinite().all()
assert all(p.grad is not None for p in layer.parameters())

grid = Grid.of((5,), scope=3)
problem = Problem.of(Inputs(torch.randn(1, 5, 1, 2), torch.randn(1, 5, 3, 1), torch.randn(3, 2, 1), grid))
print(lambdanets.__file__)
print(unavailable())
print(PLANS["native"].supports(problem))
"""


def use(**environment) -> tuple[str, str, str]:
    """Which package ran a layer, what it says of its kernels, and what the plan says."""
    done = subprocess.run(
        [sys.executable, "-c", USE], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    package, reason, plan = done.stdout.splitlines()
    return package, reason, plan


def test_the_switch():
    _, reason, plan = use(LAMBDANETS_NO_KERNELS="1")
    assert reason == "LAMBDANETS_NO_KERNELS is set"
    assert plan == f"there are no kernels: {reason}"


def missing(library: Path) -> None:
    library.unlink(missing_ok=True)


def text(library: Path) -> None:
    library.write_text("not a library")


def empty(library: Path) -> None:
    library.write_bytes(b"")


def truncated(library: Path) -> None:
    if unavailable() is not None:
        pytest.skip(f"no kernels: {unavailable()}")
    whole = LIBRARY.read_bytes()
    library.write_bytes(whole[: len(whole) // 2])


def of_another_version(library: Path) -> None:
    try:
        command = [*compiler(), "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    except CannotBuildError as error:
        pytest.skip(str(error))
    source = "const char *lambda_instruction_set(void) { return 0; } int lambda_use_instruction_set(void) { return 0; }"
    subprocess.run(command, input=source, text=True, check=True)


DAMAGES = [missing, empty, text, of_another_version, truncated]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_library_that_cannot_be_used(tmp_path, damage):
    package = tmp_path / "lambdanets"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__", LIBRARY.name))
    damage(package / "kernels" / LIBRARY.name)
    used, reason, plan = use(PYTHONPATH=str(tmp_path), LAMBDANETS_NO_KERNELS="")
    assert Path(used).parent == package
    says = "they were not built" if damage is missing else f"{LIBRARY.name} cannot be used"
    assert reason.startswith(says)
    assert "python -m lambdanets.kernels.build" in reason  # what to do about it
    assert plan == f"there are no kernels: {reason}"
