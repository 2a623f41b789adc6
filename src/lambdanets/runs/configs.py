"""Recipes by name, YAML files, and changes from the command line."""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from lambdanets.fields import hints_of, nearest, refuse_nesting
from lambdanets.files import read_text, reason
from lambdanets.models.registry import find_config
from lambdanets.runs.parsing import Tree, from_tree, to_tree
from lambdanets.tasks import task_class
from lambdanets.train.config import SECTIONS, ConfigError, ModelConfig, RunConfig

RECIPES = files("lambdanets.runs") / "recipes"
LARGEST_YAML = 256 * 2**10  # bytes; a configuration has about 2,000, and yaml takes seconds for a megabyte


def list_recipes() -> list[str]:
    return sorted(path.name.removesuffix(".yaml") for path in RECIPES.iterdir() if path.name.endswith(".yaml"))


def header(recipe: str) -> str:
    """The comment at the top of a recipe: command, cost, measured result."""
    lines = (RECIPES / f"{recipe}.yaml").read_text().splitlines()
    return "\n".join(line.removeprefix("#").strip() for line in lines if line.startswith("#"))


def resolve(recipe: str | Path, changes: Sequence[str] = (), file: Path | None = None) -> RunConfig:
    """The configuration of a recipe or YAML file, with the changes of a file and then of the command line.

    >>> resolve("digits", ["trainer.max_epochs=3"]).trainer.max_epochs
    3
    """
    changed: Tree = {} if file is None else read_yaml(file)
    for change in changes:
        changed = merged(changed, tree_of_change(change))
    tree = for_network(tree_of(recipe), changed)
    task = merged(tree, changed).get("task", RunConfig.task)
    if isinstance(task, str):
        tree = task_class(task).adapt_recipe(tree, changed)
    return from_tree(merged(tree, changed))


def for_network(recipe: Tree, changes: Tree) -> Tree:
    """Remove the fields of a recipe's network that do not apply to the network or layers of the changes.

    >>> for_network({"model": {"name": "resnet50", "width": 8}}, {"model": {"name": "vit_tiny"}})
    {'model': {'name': 'resnet50'}}
    >>> for_network({"model": {"width": 8, "scope": 7}}, {"model": {"layer": "axial"}})
    {'model': {'width': 8}}
    >>> for_network({"model": {"width": 8, "scope": 7}}, {"model": {"name": "resnet14_small"}})
    {'model': {'width': 8}}
    """
    own, wanted = recipe.get("model"), changes.get("model")
    if not isinstance(own, Mapping) or not isinstance(wanted, Mapping):
        return recipe
    row = find_config(str(wanted.get("name")))
    if row is None:
        its_row = find_config(str(own.get("name"))) or find_config(ModelConfig.name)
        assert its_row is not None
        known = own.keys() - its_row.excluded_by(wanted)
    else:
        known = {*hints_of(type(row)), *hints_of(ModelConfig)} - row.not_inherited(wanted)
    return {**recipe, "model": {key: value for key, value in own.items() if key in known}}


def tree_of(recipe: str | Path) -> Tree:
    if str(recipe) in list_recipes():
        return parse((RECIPES / f"{recipe}.yaml").read_text(), str(recipe))
    if str(recipe).endswith((".yaml", ".yml")):
        return read_yaml(Path(recipe))
    names = list_recipes()
    raise ConfigError(
        f"unknown recipe {recipe}; choose from {', '.join(names)}, or a .yaml file{nearest(str(recipe), names)}"
    )


def read_yaml(path: Path) -> Tree:
    try:
        text = read_text(path, LARGEST_YAML)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {reason(error)}") from error
    return parse(text, str(path))


def read_config(path: Path) -> RunConfig:
    """Read a configuration; errors name the file."""
    tree = read_yaml(path)
    try:
        return from_tree(tree)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def parse(text: str, name: str) -> Tree:
    try:
        tree = yaml.safe_load(text) or {}
        refuse_nesting(tree)
    except Exception as error:  # yaml lets through any error of parsing a value
        is_deep = isinstance(error, RecursionError)
        problem = (
            "its values are nested too deeply" if is_deep else " ".join(str(error).split()) or type(error).__name__
        )
        raise ConfigError(f"{name} is not a valid YAML configuration: {problem}") from error
    if not isinstance(tree, dict) or not all(isinstance(key, str) for key in tree):
        raise ConfigError(f"{name} must have the sections {', '.join(SECTIONS)}, got {type(tree).__name__}")
    return tree


def tree_of_change(change: str) -> Tree:
    """
    >>> tree_of_change("model.layer_options.h=2"), tree_of_change("seed=1")
    ({'model': {'layer_options': {'h': '2'}}}, {'seed': '1'})
    """
    key, equals, value = change.partition("=")
    if not equals or not key:
        raise ConfigError(f"expected KEY=VALUE, such as trainer.max_epochs=1, got {change!r}")
    *outer, last = key.split(".")
    tree: Tree = {last: value}
    for part in reversed(outer):
        tree = {part: tree}
    return tree


def merged(tree: Tree, changes: Tree) -> dict[str, Any]:
    """
    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}})
    {'a': {'b': 3, 'c': 2}}
    """
    result = dict(tree)
    for key, value in changes.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def as_yaml(config: RunConfig) -> str:
    text: str = yaml.safe_dump(to_tree(config), sort_keys=False, default_flow_style=None, width=120)
    return text
