"""The table of tasks. A task is imported when a configuration selects it."""

from importlib import import_module

from lambdanets.fields import nearest
from lambdanets.train.config import ConfigError
from lambdanets.train.task import Task

TASKS = {
    "classification": "lambdanets.tasks.classification:Classification",
}


def task_class(name: str) -> type[Task]:
    if name not in TASKS:
        raise ConfigError(f"unknown task={name[:50]}; choose from {', '.join(TASKS)}{nearest(name[:50], TASKS)}")
    module, _, its_class = TASKS[name].partition(":")
    found: type[Task] = getattr(import_module(module), its_class)
    return found


__all__ = ["TASKS", "task_class"]
