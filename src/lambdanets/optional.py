"""Optional packages: how to install them, and torchvision without its compiled operators."""

import warnings
from importlib import import_module
from types import ModuleType

import torch

# Operators that `import torchvision` registers fakes for, even if its library has not defined them.
OPERATORS = ("nms", "qnms")


def install_hint(extra: str) -> str:
    """The command that installs an extra in a clone of the repository.

    >>> print(install_hint("train"))
    pip install ".[train]"
    """
    return f'pip install ".[{extra}]"'


def import_torchvision(module: str = "torchvision") -> ModuleType:
    """Import torchvision, or a module of it.

    Its Linux wheel is built for CUDA. With a CPU build of torch its library does not load, and `import torchvision`
    fails, although transforms and data sets do not need the library. Declaring the two missing operators is enough;
    calling them still raises torchvision's own error.
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
