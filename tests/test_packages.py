"""Packages import each other only in the order of CONTRIBUTING.md, and importing lambdanets stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import lambdanets

ROOT = Path(lambdanets.__file__).parent
SHARED = {"compat", "fields", "files", "optional", "timing"}
MAY_IMPORT = {
    "kernels": set(),
    "ops": {"kernels"},
    "nn": {"ops", "kernels"},
    "models": {"nn", "ops"},
    "cost": {"models", "nn", "ops"},
    "interop": {"cost", "models", "nn", "ops"},
    "data": set(),
    "train": {"data", "models", "nn"},
    "tasks": {"train", "data", "models", "nn"},
    "runs": {"tasks", "train", "data", "models", "nn"},
    "bench": {"runs", "tasks", "train", "data", "interop", "cost", "models", "nn", "ops", "kernels"},
    "paper": {"bench", "cost", "models", "nn", "ops"},
    "cli": {"runs", "tasks", "train", "data", "paper", "bench", "interop", "cost", "models", "nn", "ops", "kernels"},
}


def imported_packages(path: Path) -> set[str]:
    packages = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{a.name}" for a in node.names] if node.module == "lambdanets" else [node.module]
        packages |= {name.split(".")[1] for name in names if name and name.startswith("lambdanets.")} - SHARED
    return packages


def test_packages_import_only_what_they_may():
    packages = {path.name for path in ROOT.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert packages == MAY_IMPORT.keys(), "a new package needs its line in MAY_IMPORT and in CONTRIBUTING.md"
    for package, allowed in MAY_IMPORT.items():
        for path in (ROOT / package).rglob("*.py"):
            assert imported_packages(path) <= allowed | {package}, path


def imported_by(statement: str) -> set[str]:
    """The modules that a statement imports beside those of torch, in a process of its own."""
    program = f"import sys, torch; before = set(sys.modules); {statement}; print(*set(sys.modules) - before)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_importing_lambdanets_imports_nothing_else():
    assert imported_by("import lambdanets; dir(lambdanets)") == {"lambdanets"}


def test_layers_need_torch_and_little_else():
    """Nothing beside our own modules and jaxtyping's, which imports numpy where it is installed."""
    found = imported_by("from lambdanets import LambdaLayer2d")
    third_party = {m.split(".")[0] for m in found} - sys.stdlib_module_names
    assert {m for m in third_party if not m.startswith("_")} <= {"lambdanets", "jaxtyping", "wadler_lindig", "numpy"}
    packages = {m.split(".")[1] for m in found if m.startswith("lambdanets.")} - SHARED
    assert packages == {"kernels", "ops", "nn"}


def test_whatever_lambdanets_exports_is_there():
    namespace = {}
    exec("from lambdanets import *", namespace)
    assert {*lambdanets.__all__} <= namespace.keys()
    assert {*lambdanets.__all__, "interop"} <= {*dir(lambdanets)}
    assert lambdanets.interop.adopt is lambdanets.adopt
    with pytest.raises(AttributeError, match="module 'lambdanets' has no attribute 'LambdaLayer4d'"):
        lambdanets.LambdaLayer4d  # noqa: B018


def test_training_knows_no_images():
    """`train` knows the protocol of tasks, `runs` the table of tasks; neither knows what is learnt."""
    for package in ("train", "runs"):
        for path in (ROOT / package).rglob("*.py"):
            assert "lambdanets.data.images" not in path.read_text(), path
            assert "lambdanets.tasks.classification" not in path.read_text(), path
