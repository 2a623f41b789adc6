"""The compiled kernels as Python sees them: loaded once, or the reason why not.

torch comes first: its OpenMP runtime is then the one that the library finds, and there is never a second.
"""

import ctypes
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lambdanets.kernels.build import LIBRARY

SUFFIX = {torch.float32: "f32", torch.float64: "f64"}
# Set to anything to do without the kernels.
SWITCH = "LAMBDANETS_NO_KERNELS"
# Set to baseline, avx2 or avx512 to compute with less than the machine has.
INSTRUCTIONS = "LAMBDANETS_INSTRUCTION_SET"
# How the position term is computed, as in lambda.h: the faster one that is accurate, or one that is forced.
AUTO, DIRECT, FFT = 0, 1, 2


class LambdaProblem(ctypes.Structure):
    """`lambda_problem` of lambda.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("b", "h", "k", "v", "u")),
        *((name, ctypes.c_int64 * 2) for name in ("queries", "context", "scope", "stride", "dilation")),
        ("past", ctypes.c_int64),
        ("threads", ctypes.c_int64),
        ("algorithm", ctypes.c_int64),
        *((name, ctypes.c_int64 * 4) for name in ("q", "dq", "values", "dvalues", "y", "keys", "dkeys")),
        ("norm", ctypes.c_void_p),
    )


PROBLEM = [ctypes.POINTER(LambdaProblem)]
# What every kernel takes before its tensors, and how many tensors. As in lambda.h, to which the number belongs.
INTERFACE = 6
KERNELS: dict[str, tuple[list[type], int]] = {
    "forward": (PROBLEM, 5),
    "backward": (PROBLEM, 9),
    "uses_fft": ([*PROBLEM, ctypes.c_int], 0),
    "position_cost": ([*PROBLEM, ctypes.c_int, ctypes.POINTER(ctypes.c_double)], 0),
    "content_forward": (PROBLEM, 5),
    "content_backward": (PROBLEM, 7),
    "norm_statistics": ([ctypes.c_int64] * 4, 3),
    "norm_backward": ([*[ctypes.c_int64] * 5, ctypes.c_double], 10),
    "norm_rectified": ([ctypes.c_int64] * 3, 8),
}


def is_cut_short(library: Path) -> bool:
    """Does the file end before its last part, the table of sections? Loading half a library would end the process."""
    content = library.read_bytes()
    if content[:5] != b"\x7fELF\x02":  # another format, which the loader itself refuses if it is not its own
        return False
    if len(content) < 64:
        return True
    sections: int = struct.unpack_from("<Q", content, 40)[0]
    size, count = struct.unpack_from("<HH", content, 58)
    return bool(len(content) < sections + size * count)


def load() -> ctypes.CDLL | str:
    """The library, or why there is none."""
    if os.environ.get(SWITCH):
        return f"{SWITCH} is set"
    if not LIBRARY.exists():
        return "they were not built, see `python -m lambdanets.kernels.build`"
    try:
        if is_cut_short(LIBRARY):
            return f"{LIBRARY.name} cannot be used (it is cut short), see `python -m lambdanets.kernels.build`"
        library = ctypes.CDLL(str(LIBRARY))
        library.lambda_instruction_set.restype = ctypes.c_char_p
        library.lambda_use_instruction_set.argtypes = [ctypes.c_char_p]
        if library.lambda_interface() != INTERFACE:
            return f"{LIBRARY.name} is of another version, see `python -m lambdanets.kernels.build`"
        for suffix in SUFFIX.values():
            for name, (sizes, tensors) in KERNELS.items():
                getattr(library, f"lambda_{name}_{suffix}").argtypes = [*sizes, *[ctypes.c_void_p] * tensors]
        wanted = os.environ.get(INSTRUCTIONS)
        if wanted and not library.lambda_use_instruction_set(wanted.encode()):
            return f"{INSTRUCTIONS} is {wanted!r}: not one of baseline, avx2, avx512, or not on this machine"
    except (OSError, AttributeError) as error:  # damaged, for another machine, or of another version
        return f"{LIBRARY.name} cannot be used ({error}), see `python -m lambdanets.kernels.build`"
    return library


LOADED = load()
REASON = LOADED if isinstance(LOADED, str) else None
FUNCTIONS = {
    (name, dtype): getattr(LOADED, f"lambda_{name}_{suffix}")
    for name in ([] if isinstance(LOADED, str) else KERNELS)
    for dtype, suffix in SUFFIX.items()
}
HAS_THREADS = not isinstance(LOADED, str) and bool(LOADED.lambda_has_threads())


def unavailable() -> str | None:
    """None, or the reason why the kernels cannot be used."""
    return REASON


def instruction_set() -> str:
    """What the kernels are compiled to on this machine."""
    return str(_library().lambda_instruction_set().decode())


def use_instruction_set(name: str) -> bool:
    """Compute with another one, for tests; False if this machine does not have it."""
    return bool(_library().lambda_use_instruction_set(name.encode()))


def uses_fft(problem: LambdaProblem, dtype: torch.dtype, *, backward: bool) -> bool:
    """Whether ordinary examples of a problem are computed through Fourier transforms."""
    _library()
    return bool(FUNCTIONS["uses_fft", dtype](problem, backward))


def position_cost(
    b: int, h: int, k: int, v: int, u: int, window: Sequence[Any], dtype: torch.dtype, *, backward: bool
) -> tuple[float, float]:
    """Estimated multiply-adds per example of the position term: direct, and by Fourier transforms.

    `window` is what the operators take: queries, context, scope, stride and dilation on two axes, rows of the table
    that count, algorithm (not used here). Infinitely many where there are no transforms; with `AUTO` the kernels take
    the smaller one. A forward pass, or a backward pass alone.
    """
    _library()
    axes = ((ctypes.c_int64 * 2)(*axis) for axis in window[:5])
    cost = (ctypes.c_double * 2)()
    FUNCTIONS["position_cost", dtype](LambdaProblem(b, h, k, v, u, *axes, window[5], threads()), backward, cost)
    return cost[0], cost[1]


def threads() -> int:
    """How many threads a call may use: as many as torch."""
    return torch.get_num_threads() if HAS_THREADS else 1


def call(name: str, dtype: torch.dtype, sizes: Sequence[object], *tensors: Tensor | int | None) -> None:
    """Run a kernel on sizes and tensors of one dtype; those that are None are NULL.

    An integer is the address of a part of a tensor, which the caller has checked.
    """
    pointers: list[int | None] = []
    for t in tensors:
        if t is None or isinstance(t, int):
            pointers.append(t)
        elif t.is_cpu and t.dtype == dtype:
            pointers.append(t.data_ptr())
        else:
            found = ", ".join(f"{t.dtype} on {t.device}" for t in tensors if isinstance(t, Tensor))
            raise ValueError(
                f"lambdanets: lambda_{name} needs tensors of one dtype on the CPU, {dtype} here, got {found}"
            )
    if dtype not in SUFFIX:
        raise ValueError(f"lambdanets: lambda_{name} is for float32 and float64, got {dtype}")
    _library()
    if FUNCTIONS[name, dtype](*sizes, *pointers):
        raise MemoryError(f"lambdanets: not enough memory for the kernel lambda_{name}")


def _library() -> ctypes.CDLL:
    if isinstance(LOADED, str):
        raise RuntimeError(f"lambdanets has no kernels here: {LOADED}")
    return LOADED
