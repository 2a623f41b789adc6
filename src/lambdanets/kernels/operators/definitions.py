"""What all operators of the kernels share: their names in torch, and how a problem is described to C."""

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lambdanets.kernels.library import Problem, threads

GRID = "SymInt[] queries, SymInt[] context, SymInt[] scope, SymInt[] stride, SymInt[] dilation, SymInt past"

definitions = torch.library.Library("lambdanets", "DEF")


def describe(
    q: Tensor,
    values: Tensor,
    table: Tensor,
    grid: Sequence[Any],
    *,
    y: Tensor,
    content: Tensor | None = None,
    dq: Tensor | None = None,
    dvalues: Tensor | None = None,
    keys: Tensor | None = None,
    dkeys: Tensor | None = None,
    norm: Tensor | None = None,
) -> Problem:
    """The problem of q (b, n, h, k), values (b, m, v, u) and table (p, k, u) on a grid of two axes.

    What is not given is not used. The kernels trust the sizes, so they must fit.
    """
    b, _, h, k = q.shape
    v, u = values.shape[2:]
    queries, context, scope = (math.prod(axis) for axis in grid[:3])
    fits = {
        "q": (b, queries, h, k),
        "values": (b, context, v, u),
        "table": (scope, k, u),
        "y": (b, queries, h, v),
        "content": (b, k, v),
    }
    for (name, shape), t in zip(fits.items(), (q, values, table, y, content), strict=True):
        if t is not None and tuple(t.shape) != shape:
            raise ValueError(f"lambdanets: {name} must be {shape} here, got {tuple(t.shape)}")
    two, four = ctypes.c_int64 * 2, ctypes.c_int64 * 4
    strides = (four() if t is None else four(*t.stride()) for t in (q, dq, values, dvalues, y, keys, dkeys))
    pointer = None if norm is None else norm.data_ptr()
    return Problem(b, h, k, v, u, *(two(*axis) for axis in grid[:5]), grid[5], threads(), *strides, pointer)


def refuse_second_derivative(name: str) -> None:
    """Without this, torch would warn and take the second derivatives for zero."""

    def refuse(ctx: Any, *gradients: Tensor) -> None:
        raise RuntimeError(
            "lambdanets: the kernels have no second derivative; "
            "with LAMBDANETS_NO_KERNELS=1 set, torch does without them"
        )

    def forget(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Nothing is needed to refuse."""

    torch.library.register_autograd(f"lambdanets::{name}", refuse, setup_context=forget, lib=definitions)
