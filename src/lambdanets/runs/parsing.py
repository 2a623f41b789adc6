"""Converts between configurations and trees of plain values, as in YAML."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from lambdanets.fields import brief, hints_of, nearest, read
from lambdanets.models.registry import find_config
from lambdanets.tasks import task_class
from lambdanets.train.config import SECTIONS, ConfigError, ModelConfig, RunConfig

Tree = Mapping[str, Any]


def sections_of(task: object) -> dict[str, type]:
    """The classes of the sections, by the name of the task."""
    if not isinstance(task, str):
        raise ConfigError(f"task must be the name of a task, got {brief(task)}")
    return {**SECTIONS, **task_class(task).sections}


def from_tree(tree: Tree) -> RunConfig:
    """Make a configuration from plain values; missing values get their defaults.

    >>> from_tree({"optim": {"lr": "1e-2"}, "model": {"name": "lambda_resnet26", "k": 8}}).model.changes
    {'k': 8}
    """
    sections = sections_of(tree.get("task", RunConfig.task))
    values: dict[str, Any] = {name: its_class() for name, its_class in sections.items()}
    for name, value in tree.items():
        if name in sections:
            if not isinstance(value, Mapping):
                raise ConfigError(f"{name} must be a section with keys, got {brief(value)}")
            values[name] = section(name, sections, value)
        else:
            values[name] = one_value(name, value, hints_of(RunConfig), "", sections)
    config: RunConfig = build(RunConfig, values)
    return config


def section(name: str, sections: Mapping[str, type], tree: Tree) -> Any:
    its_class = sections[name]
    hints = hints_of(its_class)
    if not issubclass(its_class, ModelConfig):
        values = {key: one_value(key, value, hints, f"{name}.", sections) for key, value in tree.items()}
        return build(its_class, values)
    hints.pop("changes")
    row = find_config(str(tree.get("name"))) or find_config(its_class.name)
    network = hints_of(type(row))
    values = {key: one_value(key, value, hints | network, f"{name}.", sections) for key, value in tree.items()}
    own = {key: value for key, value in values.items() if key in hints}
    return build(its_class, own | {"changes": {key: value for key, value in values.items() if key in network}})


def build(its_class: Any, values: dict[str, Any]) -> Any:
    try:
        return its_class(**values)
    except ConfigError:
        raise
    except ValueError as error:  # from sections that other packages define
        raise ConfigError(str(error)) from error


def one_value(key: str, value: Any, hints: Mapping[str, Any], prefix: str, sections: Mapping[str, type]) -> Any:
    if key not in hints:
        hint = nearest(str(key), hints, prefix) or in_section(key, sections)
        raise ConfigError(f"unknown key {prefix}{key}{hint}")
    try:
        return read(value, hints[key])
    except TypeError as error:
        raise ConfigError(f"{prefix}{key} {error}") from error


def in_section(key: str, sections: Mapping[str, type]) -> str:
    """
    >>> in_section("batch_size", SECTIONS)
    '; did you mean data.batch_size?'
    """
    found = [name for name, its_class in sections.items() if key in hints_of(its_class)]
    return f"; did you mean {found[0]}.{key}?" if found else ""


def to_tree(config: RunConfig) -> dict[str, Any]:
    """A configuration as plain values, the inverse of `from_tree`."""
    tree = asdict(config)
    tree["model"] |= tree["model"].pop("changes")
    return {key: plain(value) for key, value in tree.items()}


def plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    return list(value) if isinstance(value, tuple) else value


def changed_keys(old: RunConfig, new: RunConfig) -> list[str]:
    """The keys in which two configurations differ.

    >>> changed_keys(from_tree({}), from_tree({"seed": 1, "optim": {"lr": 1.0}}))
    ['seed', 'optim.lr']
    """
    found = []
    before, after = to_tree(old), to_tree(new)
    for name, value in after.items():
        if isinstance(value, dict):
            found += [f"{name}.{key}" for key in {**before[name], **value} if before[name].get(key) != value.get(key)]
        elif before[name] != value:
            found.append(name)
    return found
