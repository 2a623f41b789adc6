"""How much more memory a training step needs at its peak, measured in a process of its own.

`python -m lambdanets.bench.memory MODULE FUNCTION ARGUMENTS THREADS` is that process: it prints the bytes. The peak is
that of the address space (VmHWM), not ru_maxrss: a process inherits the latter from the one that started it, whose peak
is higher.
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
# Writing 5 makes the present memory the peak.
RESET_PEAK = Path("/proc/self/clear_refs")


class Subject(NamedTuple):
    """What is measured: a module, its input, and a small input with which it warms up."""

    module: nn.Module
    x: Tensor
    small: Tensor


def peak_in_fresh_process(make: Callable[..., Subject], **arguments: Any) -> int | None:
    """Bytes beyond those of the module and its input; None where the system does not tell.

    `make` is a function of one of the benchmarks, its arguments are what JSON has.
    """
    if not (STATUS.exists() and RESET_PEAK.exists()):
        return None
    command = [sys.executable, "-m", "lambdanets.bench.memory", make.__module__, make.__name__]
    command += [json.dumps(arguments), str(torch.get_num_threads())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout)


def peak_of_training_step(module: nn.Module, x: Tensor, small: Tensor) -> int:
    training(module, small)()  # threads, kernels and libraries start here and are not the step's
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
