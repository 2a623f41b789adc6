"""A whole lambda layer behind its projections: norms of queries and values, softmax of the keys, both terms.

`projected` (b, n, h k + v u + k u) holds queries, values and keys as one product gave them. The kernels read its
columns where they are and autograd keeps nothing else of that size: what the backward pass needs, it computes again.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lambdanets.kernels.library import LambdaProblem, call, threads
from lambdanets.kernels.operators.batch_norm import gradient_in_place, statistics
from lambdanets.kernels.operators.definitions import (
    COMPOSITIONS,
    GRID,
    definitions,
    describe,
    differentiate,
    gradients_of,
    no_second_derivative,
)

# Weight and bias are those of the batch norms of queries and values, or None if there is nothing to normalise.
INPUTS = "Tensor projected, Tensor? weight, Tensor? bias, Tensor table, Tensor? position_bias"
SIZES = f"SymInt h, SymInt k, SymInt u, float eps, {GRID}"
KEPT = "Tensor mean, Tensor var, Tensor by_u, Tensor softmax"

# For inference, with norms (3, h k + v u) whose mean, scale and shift are known: it has no gradient.
definitions.define(
    "infer(Tensor projected, Tensor norm, Tensor table, Tensor? position_bias,"
    f" SymInt h, SymInt k, SymInt u, {GRID}) -> Tensor"
)
definitions.define(f"layer({INPUTS}, {SIZES}) -> (Tensor y, {KEPT})")
definitions.define(f"layer_backward(Tensor dy, {INPUTS}, {KEPT}, {SIZES}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)")


class Columns(NamedTuple):
    """Of a projected tensor, or of its gradient."""

    q: Tensor
    values: Tensor
    keys: Tensor
    normed: Tensor  # queries and values as rows of a matrix


def columns(projected: Tensor, h: int, k: int, u: int) -> Columns:
    """Of a contiguous tensor."""
    b, n, width = projected.shape
    start, first, rest = projected.storage_offset(), (n * width, width), width - k * u
    v = (rest - h * k) // u
    return Columns(
        projected.as_strided((b, n, h, k), (*first, k, 1), start),
        projected.as_strided((b, n, v, u), (*first, u, 1), start + h * k),
        projected.as_strided((b, n, k, u), (*first, u, 1), start + rest),
        projected.as_strided((b * n, rest), (width, 1), start),
    )


def normalisation(mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor | None:
    """Mean, scale and shift of every column, as the kernels take them."""
    if weight is None or bias is None:
        return None
    return torch.stack((mean, weight * torch.rsqrt(var + eps), bias))


@torch.library.impl(definitions, "layer", "CPU")
def _forward(
    projected: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    table: Tensor,
    position_bias: Tensor | None,
    h: int,
    k: int,
    u: int,
    eps: float,
    *grid: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    projected = projected.contiguous()
    if weight is None:
        mean, var = projected.new_empty(0), projected.new_empty(0)
    else:
        mean, var = statistics(columns(projected, h, k, u).normed)
    norm = normalisation(mean, var, weight, bias, eps)
    y, by_u, softmax = _answer(projected, (h, k, u), norm, table, position_bias, grid)
    return y, mean, var, by_u, softmax


@lru_cache(maxsize=1024)
def _description(shape: tuple[int, ...], sizes: tuple[int, ...], rows: tuple[int, ...], grid: Any) -> LambdaProblem:
    """The problem of contiguous tensors, of which it needs only the shapes; without norms."""
    with torch.device("meta"):
        q, values, keys, _ = columns(torch.empty(shape), *sizes)
        y = torch.empty(*q.shape[:3], values.shape[2])
        return describe(q, values, torch.empty(rows), grid, y=y, keys=keys)


def _answer(
    projected: Tensor,
    sizes: tuple[int, int, int],
    norm: Tensor | None,
    table: Tensor,
    position_bias: Tensor | None,
    grid: tuple[Any, ...],
) -> tuple[Tensor, Tensor, Tensor]:
    """The output, and what is kept of the content term; `projected` is contiguous."""
    (b, n, width), (h, k, u), dtype = projected.shape, sizes, projected.dtype
    rest = width - k * u
    v = (rest - h * k) // u
    y, content = projected.new_empty(b, n, h, v), projected.new_empty(b, k, v)
    by_u, softmax = projected.new_empty(b, u, k, v), projected.new_empty(b, 2, u, k)
    axes = tuple(map(tuple, grid[:5]))
    described = _description((b, n, width), sizes, tuple(table.shape), (*axes, *grid[5:]))
    problem = LambdaProblem.from_buffer_copy(described)  # a copy: other threads may be using theirs
    problem.threads, problem.norm = threads(), None if norm is None else norm.data_ptr()
    # Addresses instead of views of the columns, which would take longer to make than small maps to compute.
    q, element = projected.data_ptr(), projected.element_size()
    values, keys = q + h * k * element, q + rest * element
    call("content_forward", dtype, [problem], keys, values, content, by_u, softmax)
    if position_bias is not None:
        content += position_bias[:, None]
    call("forward", dtype, [problem], q, values, table.contiguous(), content, y)
    return y, by_u, softmax


@torch.library.impl(definitions, "infer", "CPU")
def _infer(
    projected: Tensor, norm: Tensor, table: Tensor, position_bias: Tensor | None, h: int, k: int, u: int, *grid: Any
) -> Tensor:
    width = projected.shape[-1] - k * u  # without the keys
    if norm.shape != (3, width) or norm.dtype != projected.dtype:
        wanted, found = (3, width), tuple(norm.shape)
        raise ValueError(f"lambdanets: norm must be {wanted} of {projected.dtype} here, got {found} of {norm.dtype}")
    return _answer(projected.contiguous(), (h, k, u), norm.contiguous(), table, position_bias, grid)[0]


@torch.library.impl(definitions, "layer_backward", "CPU")
def _gradients(
    dy: Tensor,
    projected: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    table: Tensor,
    position_bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    by_u: Tensor,
    softmax: Tensor,
    h: int,
    k: int,
    u: int,
    eps: float,
    *grid: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    projected = projected.contiguous()
    q, values, keys, normed = columns(projected, h, k, u)
    gradient = torch.empty_like(projected)
    dq, dvalues, dkeys, dnormed = columns(gradient, h, k, u)
    dtable = torch.empty_like(table, memory_format=torch.contiguous_format)
    content = by_u.sum(1)
    if position_bias is not None:
        content += position_bias[:, None]
    dcontent = torch.empty_like(content)
    norm = normalisation(mean, var, weight, bias, eps)
    problem = describe(q, values, table, grid, y=dy, dq=dq, dvalues=dvalues, keys=keys, dkeys=dkeys, norm=norm)
    call("backward", q.dtype, [problem], q, values, table.contiguous(), content, dy, dq, dvalues, dtable, dcontent)
    call("content_backward", q.dtype, [problem], keys, values, by_u, softmax, dcontent, dkeys, dvalues)
    if weight is None:
        dweight, dbias = torch.empty_like(mean), torch.empty_like(mean)
    else:
        dweight, dbias = gradient_in_place(dnormed, normed, weight, mean, var, eps)
    return gradient, dweight, dbias, dtable, dcontent.sum((0, 2))


def _fake(
    projected: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    table: Tensor,
    position_bias: Tensor | None,
    h: int,
    k: int,
    u: int,
    eps: float,
    *grid: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    b, n, width = projected.shape
    v = (width - h * k - k * u) // u
    statistic = (0,) if weight is None else (h * k + v * u,)
    shapes = ((b, n, h, v), statistic, statistic, (b, u, k, v), (b, 2, u, k))
    y, mean, var, by_u, softmax = (projected.new_empty(shape) for shape in shapes)
    return y, mean, var, by_u, softmax


def _fake_gradients(
    dy: Tensor,
    projected: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    table: Tensor,
    position_bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    by_u: Tensor,
    softmax: Tensor,
    h: int,
    k: int,
    *_: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    statistic = (torch.empty_like(mean), torch.empty_like(mean))
    return projected.new_empty(projected.shape), *statistic, table.new_empty(table.shape), table.new_empty(k)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.sizes = inputs[5:]
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(*inputs[:5], *output[1:])


def _backward(ctx: Any, dy: Tensor, *_: Any) -> tuple[Any, ...]:
    saved = ctx.saved_tensors  # once: checkpoints refuse to give them again
    if torch.is_grad_enabled():
        return gradients_of(COMPOSITIONS["layer"], (*saved[:5], *ctx.sizes), dy)
    _, weight, bias, _, position_bias, *_ = saved
    gradients = torch.ops.lambdanets.layer_backward(dy, *saved, *ctx.sizes)
    dprojected, dweight, dbias, dtable, dposition_bias = gradients
    return (
        dprojected,
        None if weight is None else dweight,
        None if bias is None else dbias,
        dtable,
        None if position_bias is None else dposition_bias,
        *(None,) * len(ctx.sizes),
    )


def _fake_infer(
    projected: Tensor, norm: Tensor, table: Tensor, position_bias: Tensor | None, h: int, k: int, u: int, *_: Any
) -> Tensor:
    b, n, width = projected.shape
    return projected.new_empty(b, n, h, (width - h * k - k * u) // u)


torch.library.register_fake("lambdanets::infer", _fake_infer, lib=definitions)
torch.library.register_fake("lambdanets::layer", _fake, lib=definitions)
torch.library.register_fake("lambdanets::layer_backward", _fake_gradients, lib=definitions)
differentiate("layer", _backward, _remember)
no_second_derivative("layer_backward")

infer = torch.ops.lambdanets.infer.default
layer = torch.ops.lambdanets.layer.default
