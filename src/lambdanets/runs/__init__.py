"""Runs: train a network by a recipe into a folder, then evaluate it and predict with it.

>>> from lambdanets.runs import resolve
>>> resolve("digits", ["trainer.max_epochs=3"]).trainer.max_epochs
3
"""

import lambdanets.train  # noqa: F401  # before Lightning, see there
from lambdanets.runs.configs import as_yaml, list_recipes, read_config, resolve
from lambdanets.runs.evaluate import evaluate_run
from lambdanets.runs.folder import RunError, RunFolder, all_runs, find_run, free_name
from lambdanets.runs.predict import Predictor
from lambdanets.runs.run import Result, train

__all__ = [
    "Predictor",
    "Result",
    "RunError",
    "RunFolder",
    "all_runs",
    "as_yaml",
    "evaluate_run",
    "find_run",
    "free_name",
    "list_recipes",
    "read_config",
    "resolve",
    "train",
]
