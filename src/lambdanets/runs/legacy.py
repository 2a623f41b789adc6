"""Run folders of versions without model/task.json: classes are in run.json, the rest in config.yaml."""

from typing import Any

from lambdanets.fields import brief
from lambdanets.train.config import RunConfig


def is_legacy(description: Any) -> bool:
    """Whether run.json is of such a version."""
    return isinstance(description, dict) and "classes" in description


def task_state(config: RunConfig, description: dict[str, Any]) -> dict[str, Any]:
    """What model/task.json would hold, for the one task of those versions; ValueError if something is missing."""
    if config.task != "classification":
        raise ValueError(f"there is no task.json for the task {config.task}")
    classes = description["classes"]
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise ValueError(f"classes must be a list of names, got {brief(classes)}")
    data = config.data
    return {
        "classes": classes,
        "image_size": data.image_size,
        "mean": data.mean,
        "std": data.std,
        "crop": data.crop,
        "channels_last": config.model.channels_last,
    }
