"""What all operators of the kernels share: their names in torch, and how a problem is described to C."""

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lambdanets.compat import any_requires_grad, below_autograd
from lambdanets.kernels.library import LambdaProblem, threads

GRID = (
    "SymInt[] queries, SymInt[] context, SymInt[] scope, SymInt[] stride, SymInt[] dilation, SymInt past, int algorithm"
)

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
) -> LambdaProblem:
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
    return LambdaProblem(
        b, h, k, v, u, *(two(*axis) for axis in grid[:5]), grid[5], threads(), grid[6], *strides, pointer
    )


def differentiate(name: str, backward: Callable[..., Any], remember: Callable[..., None]) -> None:
    """Give an operator its gradient: `remember(ctx, inputs, output)`, then `backward(ctx, *gradients)`.

    As torch.library.register_autograd does it, but faster: here no argument has a default.
    """
    operator = getattr(torch.ops.lambdanets, name).default

    def forward(ctx: Any, keys: Any, *inputs: Any) -> Any:
        output = below_autograd(operator, keys, *inputs)
        remember(ctx, inputs, output)
        return output

    def gradients(ctx: Any, *of_outputs: Tensor) -> tuple[Any, ...]:
        return None, *backward(ctx, *of_outputs)

    methods = {"forward": staticmethod(forward), "backward": staticmethod(gradients)}
    recorded: Any = type(f"{name}_with_gradients", (torch.autograd.Function,), methods)

    def run(keys: Any, *inputs: Any) -> Any:
        if torch.is_grad_enabled() and any_requires_grad(*inputs):
            return recorded.apply(keys, *inputs)
        return below_autograd(operator, keys, *inputs)

    definitions.impl(name, run, "Autograd", with_keyset=True)


# Operators by name, as compositions that torch can differentiate any number of times. The mathematics of whole terms
# and layers is above this package, so ops and nn enter theirs here.
COMPOSITIONS: dict[str, Callable[..., Tensor]] = {}


def gradients_of(function: Callable[..., Tensor], inputs: Sequence[Any], dy: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients of a function's inputs, with a graph of their own.

    Of the inputs as such, even if one of them was computed from another: hence aliases, in the very same layout.
    """
    wants = [isinstance(t, Tensor) and t.requires_grad for t in inputs]
    aliases = [torch.ops.aten.alias.default(t) if wanted else t for t, wanted in zip(inputs, wants, strict=True)]
    wanted = [t for t, wanted in zip(aliases, wants, strict=True) if wanted]
    found = iter(torch.autograd.grad(function(*aliases), wanted, dy, create_graph=True) if wanted else ())
    return tuple(next(found) if wanted else None for wanted in wants)


def no_second_derivative(name: str) -> None:
    """For an operator that is called only where no derivative of its result is wanted: torch would take it for zero."""

    def refuse(ctx: Any, *gradients: Tensor) -> Any:
        raise RuntimeError(f"lambdanets::{name} has no derivative; differentiate the operator whose gradient it is")

    def forget(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Nothing is needed to refuse."""

    differentiate(name, refuse, forget)
