"""Describes the machine of a measurement."""

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from lambdanets.bench.passes import Run
from lambdanets.kernels import instruction_set, unavailable
from lambdanets.timing import best_times

PACKAGES = ("lambdanets", "torch", "torchvision", "timm", "lambda-networks")
# Large enough for the peak rate of matrix products.
GEMM_SIDE = 2048


def cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def cores() -> int:
    """The cores that this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def installed_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def gemm(side: int = GEMM_SIDE) -> Run:
    """A product of two float32 matrices of `side` x `side`, whose rate is the limit in `bench limit`."""
    a, b, out = (torch.randn(side, side) for _ in range(3))
    return lambda: torch.mm(a, b, out=out)


def gemm_flops(side: int = GEMM_SIDE) -> float:
    return 2.0 * side**3


def gemm_peak(side: int = GEMM_SIDE, rounds: int = 20) -> float:
    """The best measured floating-point operations per second."""
    return gemm_flops(side) / best_times({"gemm": gemm(side)}, range(rounds))["gemm"]


def describe_machine(*, quick: bool = False) -> dict[str, Any]:
    """Hardware and versions, for JSON."""
    return {
        "cpu": cpu_model(),
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {package: installed_version(package) for package in PACKAGES},
        "torch": torch.backends.cpu.get_cpu_capability(),
        "kernels": instruction_set() if unavailable() is None else None,
        "gemm_gflops": (gemm_peak(512, 3) if quick else gemm_peak()) / 1e9,
    }
