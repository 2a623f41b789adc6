"""The command `lambdanets`, with networks whose batch norms look at one image at a time.

Processes on CPUs have batch statistics of their own, so that only such networks can be compared with one process. A
program of its own, because Lightning starts its processes with the command that it was started with.
"""

import os
import time
from functools import wraps
from pathlib import Path

from torch import nn
from torch.nn.functional import group_norm

import lambdanets.models
from lambdanets.cli.main import main

make = lambdanets.models.create_model


class NoBatchNorm1d(nn.BatchNorm1d):
    """Its parameters and buffers, but nothing is normed: over the two channels of small layers that would be chaos."""

    def forward(self, x):
        return x * self.weight + self.bias


class NoBatchNorm2d(nn.BatchNorm2d):
    """Over all channels of an image."""

    def forward(self, x):
        return group_norm(x, 1, self.weight, self.bias)


# Where to wait, as "STEP FOLDER".
PAUSE = "LAMBDANETS_TESTS_PAUSE"


class Pause:
    """A hook that lets a test do something in a known step, however fast the machine is.

    A process that has come to the step leaves a file `waiting-PID` in the folder, and goes on when `go` is there.
    """

    def __init__(self, step: str, folder: str) -> None:
        self.step, self.folder = int(step), Path(folder)
        self.begun = 0

    def __call__(self, module: nn.Module, inputs: object) -> None:
        self.begun += module.training
        if module.training and self.begun == self.step:
            (self.folder / f"waiting-{os.getpid()}").touch()
            while not (self.folder / "go").exists():
                time.sleep(0.02)


OTHERS = {nn.BatchNorm1d: NoBatchNorm1d, nn.BatchNorm2d: NoBatchNorm2d}


@wraps(make)
def create_model(*arguments, **more):
    model = make(*arguments, **more)
    for module in model.modules():
        module.__class__ = OTHERS.get(type(module), type(module))
    if PAUSE in os.environ:
        model.register_forward_pre_hook(Pause(*os.environ[PAUSE].split(" ", 1)))
    return model


if __name__ == "__main__":
    lambdanets.models.create_model = create_model  # before the modules that take it from there are imported
    main()
