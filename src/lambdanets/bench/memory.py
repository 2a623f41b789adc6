"""Peak memory of a training step, measured in a separate process.

`python -m lambdanets.bench.memory MODULE FUNCTION ARGUMENTS THREADS` is that process and prints the bytes. It reads
VmHWM instead of ru_maxrss, because a process inherits the latter from its parent.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lambdanets.bench.passes import training

STATUS = Path("/proc/self/status")
# Writing 5 resets the peak to the current memory.
RESET_PEAK = Path("/proc/self/clear_refs")


class Subject(NamedTuple):
    """A module to measure, its input, and a small input for the warm-up."""

    module: nn.Module
    x: Tensor
    small: Tensor


def peak_in_fresh_process(make: Callable[..., Subject], **arguments: Any) -> int | None:
    """Peak bytes beyond the module and its input; None if the system does not report them.

    `make` is a function of a benchmark, whose arguments must be JSON values.
    """
    if not (STATUS.exists() and RESET_PEAK.exists()):
        return None
    command = [sys.executable, "-m", "lambdanets.bench.memory", make.__module__, make.__name__]
    command += [json.dumps(arguments), str(torch.get_num_threads())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout)


def peak_of_training_step(module: nn.Module, x: Tensor, small: Tensor) -> int:
    training(module, small)()  # start threads and load libraries before the measurement
    x.requires_grad_()
    RESET_PEAK.write_text("5")
    before = status_bytes("VmRSS")
    module.train()
    y = module(x)
    torch.autograd.grad(y, [x, *module.parameters()], torch.ones_like(y))
    return status_bytes("VmHWM") - before


def status_bytes(field: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return 1024 * int(line.split()[1])


def main() -> None:
    module, function, arguments, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    make: Callable[..., Subject] = getattr(import_module(module), function)
    print(peak_of_training_step(*make(**json.loads(arguments))))


if __name__ == "__main__":
    main()
