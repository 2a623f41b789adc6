"""How much more memory a training step needs at its peak, measured in a process of its own.

`python -m lambdanets.bench.memory NAME SHAPE` is that process: it prints the bytes. The peak is that of the address
space (VmHWM), not ru_maxrss: a process inherits the latter from the one that started it, whose peak is higher.
"""

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import torch

from lambdanets.bench.passes import training
from lambdanets.bench.peers import Shape, build

STATUS = Path("/proc/self/status")
# Writing 5 makes the present memory the peak.
RESET_PEAK = Path("/proc/self/clear_refs")


def peak_in_fresh_process(name: str, shape: Shape) -> int | None:
    """Bytes beyond those of the module and its input; None where the system does not tell."""
    if not (STATUS.exists() and RESET_PEAK.exists()):
        return None
    command = [sys.executable, "-m", "lambdanets.bench.memory", name]
    arguments = [json.dumps(asdict(shape)), str(torch.get_num_threads())]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=True)
    return int(done.stdout)


def peak_of_training_step(name: str, shape: Shape) -> int:
    module, x = build(name, shape), shape.input()
    small = replace(shape, b=2, side=3).input()
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
    name, shape, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    print(peak_of_training_step(name, Shape(**json.loads(shape))))


if __name__ == "__main__":
    main()
