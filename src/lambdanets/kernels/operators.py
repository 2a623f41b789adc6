"""The kernels as torch operators, `torch.ops.lambdanets.*`, with what compile, export and autograd need to know.

    Y = Q (lc + lp), lp[n] = sum_m E[n, m] V[m]

q (b, n, h, k), values (b, m, v, u), table (p, k, u) and, or None, content lambdas lc (b, k, v); a grid of one or two
axes as lists of integers, one-axis grids with a first axis of 1.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lambdanets.kernels.library import Problem, call, threads

GRID = "SymInt[] queries, SymInt[] context, SymInt[] scope, SymInt[] stride, SymInt[] dilation, SymInt past"
TENSORS = "Tensor q, Tensor values, Tensor table, Tensor? content"

definitions = torch.library.Library("lambdanets", "DEF")
definitions.define(f"position({TENSORS}, {GRID}) -> Tensor")
definitions.define(f"position_backward(Tensor dy, {TENSORS}, {GRID}) -> (Tensor, Tensor, Tensor, Tensor)")
definitions.define("batch_norm(Tensor x, Tensor weight, Tensor bias, float eps) -> (Tensor, Tensor, Tensor)")
definitions.define(
    "batch_norm_backward(Tensor g, Tensor x, Tensor weight, Tensor mean, Tensor var, float eps)"
    " -> (Tensor, Tensor, Tensor)"
)


def describe(q: Tensor, dq: Tensor, values: Tensor, dvalues: Tensor, y: Tensor, grid: Sequence[Any]) -> Problem:
    b, _, h, k = q.shape
    v, u = values.shape[2:]
    two, four = ctypes.c_int64 * 2, ctypes.c_int64 * 4
    strides = (four(*t.stride()) for t in (q, dq, values, dvalues, y))
    return Problem(b, h, k, v, u, *(two(*axis) for axis in grid[:5]), grid[5], threads(), *strides)


@torch.library.impl(definitions, "position", "CPU")
def position(q: Tensor, values: Tensor, table: Tensor, content: Tensor | None, *grid: Any) -> Tensor:
    y = q.new_empty(*q.shape[:3], values.shape[2])
    content = None if content is None else content.contiguous()
    call("forward", [describe(q, q, values, values, y, grid)], q, values, table.contiguous(), content, y)
    return y


@torch.library.impl(definitions, "position_backward", "CPU")
def position_backward(
    dy: Tensor, q: Tensor, values: Tensor, table: Tensor, content: Tensor | None, *grid: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dq, dvalues = torch.empty_like(q), torch.empty_like(values)
    dtable = torch.empty_like(table, memory_format=torch.contiguous_format)
    content = None if content is None else content.contiguous()
    dcontent = None if content is None else torch.empty_like(content)
    problem = describe(q, dq, values, dvalues, dy, grid)
    call("backward", [problem], q, values, table.contiguous(), content, dy, dq, dvalues, dtable, dcontent)
    return dq, dvalues, dtable, dtable.new_empty(0) if dcontent is None else dcontent


def _fake(q: Tensor, values: Tensor, table: Tensor, content: Tensor | None, *grid: Any) -> Tensor:
    return q.new_empty(*q.shape[:3], values.shape[2])


def _fake_backward(
    dy: Tensor, q: Tensor, values: Tensor, table: Tensor, content: Tensor | None, *grid: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dcontent = table.new_empty(0) if content is None else content.new_empty(content.shape)
    return torch.empty_like(q), torch.empty_like(values), table.new_empty(table.shape), dcontent


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:4])
    ctx.grid = inputs[4:]


def _backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    q, values, table, content = ctx.saved_tensors
    dq, dvalues, dtable, dcontent = torch.ops.lambdanets.position_backward(dy, q, values, table, content, *ctx.grid)
    return dq, dvalues, dtable, None if content is None else dcontent, *(None,) * 6


torch.library.register_fake("lambdanets::position", _fake, lib=definitions)
torch.library.register_fake("lambdanets::position_backward", _fake_backward, lib=definitions)
torch.library.register_autograd("lambdanets::position", _backward, setup_context=_remember, lib=definitions)


def _norm_sizes(x: Tensor, eps: float) -> tuple[object, ...]:
    return (*x.shape, x.stride(0), threads(), eps)


@torch.library.impl(definitions, "batch_norm", "CPU")
def batch_norm_forward(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    x = x if x.stride(1) == 1 else x.contiguous()
    y, mean, var = x.new_empty(x.shape), torch.empty_like(weight), torch.empty_like(weight)
    call("norm_forward", _norm_sizes(x, eps), x, weight.contiguous(), bias.contiguous(), y, mean, var)
    return y, mean, var


@torch.library.impl(definitions, "batch_norm_backward", "CPU")
def batch_norm_backward(
    g: Tensor, x: Tensor, weight: Tensor, mean: Tensor, var: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    x = x if x.stride(1) == 1 else x.contiguous()
    dx, dweight, dbias = x.new_empty(x.shape), torch.empty_like(mean), torch.empty_like(mean)
    tensors = (x, weight.contiguous(), mean, var, g.contiguous(), dx, dweight, dbias)
    call("norm_backward", _norm_sizes(x, eps), *tensors)
    return dx, dweight, dbias


def _fake_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape), torch.empty_like(weight), torch.empty_like(weight)


def _fake_norm_backward(
    g: Tensor, x: Tensor, weight: Tensor, mean: Tensor, var: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape), torch.empty_like(mean), torch.empty_like(mean)


def _remember_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    x, weight, _, ctx.eps = inputs
    _, mean, var = output
    ctx.mark_non_differentiable(mean, var)
    ctx.save_for_backward(x, weight, mean, var)


def _norm_backward(ctx: Any, g: Tensor, *_: Any) -> tuple[Any, ...]:
    return *torch.ops.lambdanets.batch_norm_backward(g, *ctx.saved_tensors, ctx.eps), None


torch.library.register_fake("lambdanets::batch_norm", _fake_norm, lib=definitions)
torch.library.register_fake("lambdanets::batch_norm_backward", _fake_norm_backward, lib=definitions)
torch.library.register_autograd("lambdanets::batch_norm", _norm_backward, setup_context=_remember_norm, lib=definitions)


def _refuse(ctx: Any, *gradients: Tensor) -> None:
    raise RuntimeError(
        "lambdanets: the kernels have no second derivative; with LAMBDANETS_NO_KERNELS=1 set, torch does without them"
    )


def _forget(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Nothing is needed to refuse."""


# Without these, torch would warn and take the second derivatives for zero.
for name in ("position_backward", "batch_norm_backward"):
    torch.library.register_autograd(f"lambdanets::{name}", _refuse, setup_context=_forget, lib=definitions)

batch_norm = torch.ops.lambdanets.batch_norm.default
position_term = torch.ops.lambdanets.position.default
