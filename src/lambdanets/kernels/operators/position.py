"""The position term, and in the same pass the content term of given content lambdas.

    Y = Q (lc + lp), lp[n] = sum_m E[n, m] V[m]

q (b, n, h, k), values (b, m, v, u), table (p, k, u) and, or None, content lambdas lc (b, k, v).
"""

from typing import Any

import torch
from torch import Tensor

from lambdanets.kernels.library import call
from lambdanets.kernels.operators.definitions import (
    COMPOSITIONS,
    GRID,
    definitions,
    describe,
    differentiate,
    gradients_of,
    no_second_derivative,
)

TENSORS = "Tensor q, Tensor values, Tensor table, Tensor? content"

definitions.define(f"position({TENSORS}, {GRID}) -> Tensor")
definitions.define(f"position_backward(Tensor dy, {TENSORS}, {GRID}) -> (Tensor, Tensor, Tensor, Tensor)")


@torch.library.impl(definitions, "position", "CPU")
def position(q: Tensor, values: Tensor, table: Tensor, content: Tensor | None, *grid: Any) -> Tensor:
    y = q.new_empty(*q.shape[:3], values.shape[2])
    content = None if content is None else content.contiguous()
    problem = describe(q, values, table, grid, y=y, content=content)
    call("forward", q.dtype, [problem], q, values, table.contiguous(), content, y)
    return y


@torch.library.impl(definitions, "position_backward", "CPU")
def position_backward(
    dy: Tensor, q: Tensor, values: Tensor, table: Tensor, content: Tensor | None, *grid: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dq, dvalues = torch.empty_like(q), torch.empty_like(values)
    dtable = torch.empty_like(table, memory_format=torch.contiguous_format)
    content = None if content is None else content.contiguous()
    dcontent = None if content is None else torch.empty_like(content)
    problem = describe(q, values, table, grid, y=dy, content=content, dq=dq, dvalues=dvalues)
    call("backward", q.dtype, [problem], q, values, table.contiguous(), content, dy, dq, dvalues, dtable, dcontent)
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
    if torch.is_grad_enabled():
        return gradients_of(COMPOSITIONS["position"], (q, values, table, content, *ctx.grid), dy)
    dq, dvalues, dtable, dcontent = torch.ops.lambdanets.position_backward(dy, q, values, table, content, *ctx.grid)
    return dq, dvalues, dtable, None if content is None else dcontent, *(None,) * len(ctx.grid)


torch.library.register_fake("lambdanets::position", _fake, lib=definitions)
torch.library.register_fake("lambdanets::position_backward", _fake_backward, lib=definitions)
differentiate("position", _backward, _remember)
no_second_derivative("position_backward")

position_term = torch.ops.lambdanets.position.default
