"""Packages of the extras: what installs them, and torchvision where its compiled operators do not load."""

import warnings
from importlib import import_module
from types import ModuleType

import torch

# What `import torchvision` registers fakes for, whether or not its library has defined them.
OPERATORS = ("nms", "qnms")


def install_hint(extra: str) -> str:
    """The command that installs an extra, run in a clone of the repository.

    >>> print(install_hint("train"))
    pip install ".[train]"
    """
    return f'pip install ".[{extra}]"'


def import_torchvision(module: str = "torchvision") -> ModuleType:
    """torchvision, or a module of it.

    On Linux its wheel is built for CUDA. Beside a torch for CPUs its library does not load, and `import torchvision`
    fails, though its transforms and data sets, all that is needed here, do without. Declaring the two operators that
    it misses is enough; calling them still raises torchvision's own error.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Failed to load image Python extension")
        try:
            return import_module(module)
        except RuntimeError as error:
            if "operator torchvision::" not in str(error):
                raise
        for operator in OPERATORS:
            torch.library.define(
                f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )
        return import_module(module)
