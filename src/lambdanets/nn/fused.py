"""A whole layer in one operator of the kernels, where these can do all that it does.

What torch would do in a dozen steps between the projections and the output, each with a tensor of its own to write and
for autograd to keep, is done where the numbers are.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor

from lambdanets.kernels.operators import COMPOSITIONS, infer, layer
from lambdanets.nn.lambda_options import LambdaOptions
from lambdanets.nn.norms import FusedNorms, check_batch, keep_statistics
from lambdanets.nn.projections import Part, project_jointly
from lambdanets.ops.content import content_lambda
from lambdanets.ops.geometry import Grid, crop_table, reachable_scope
from lambdanets.ops.keys import normalise_keys
from lambdanets.ops.plans import Plan, Problem, choose
from lambdanets.ops.plans.native import composed_term


class LayerCall(NamedTuple):
    """One call of a lambda layer: all that decides how it is computed. Calls that are equal take the same way."""

    options: LambdaOptions
    context: bool  # whether these arguments were given
    mask: bool
    relation: bool
    b: int
    size: tuple[int, ...]  # of the map
    trains: bool
    device: torch.device
    dtype: torch.dtype
    no_kernels: str | None  # why the kernels cannot be used here and now


# What the operators serve, for every option of a layer and every argument of a call: a test of its value, or None if
# any will do. An option that is not in here has not been thought of: tests compare the names with LambdaLayer's.
SERVED: dict[str, Callable[[Any], bool] | None] = {
    **dict.fromkeys(("d_in", "d_out", "d_context", "k", "h", "u", "size", "dilation", "position_bias")),
    "scope": lambda scope: scope is not None,
    "stride": lambda stride: max(stride) == 1,
    "terms": lambda terms: terms == "both",
    "key_norm": lambda key_norm: key_norm == "softmax",
    "norm": lambda norm: norm != "rms",
    "causal": lambda causal: not causal,
    "relations": lambda relations: relations is None,
    "plan": None,  # the choice respects it
    "table": None,  # where the embeddings come from and start is not what the layer does
    "table_std": None,
    "context": lambda given: not given,
    "mask": lambda given: not given,
    "relation": lambda given: not given,
}


class Choice(NamedTuple):
    """How a call is computed."""

    plan: Plan | None = None  # None for a call that the operators do not serve, whatever the plan
    scope: tuple[int, ...] = ()  # the part of the window that is on the map
    window: tuple[Any, ...] | None = None  # the last arguments of the operators, None if the plan does not take layers


def is_served(call: LayerCall) -> bool:
    """Whether the operators do all that the layer does in this call."""
    if call.no_kernels is not None:
        return False
    for name, test in SERVED.items():
        if test is not None and not test(getattr(call if name in LayerCall._fields else call.options, name)):
            return False
    return True


def choose_for(call: LayerCall) -> Choice:
    """The plan of a call, chosen once for all that are equal."""
    return _choice(call) if torch.compiler.is_compiling() else _kept_choice(call)  # no cache holds symbolic sizes


def _choice(call: LayerCall) -> Choice:
    if not is_served(call):
        return Choice()
    o, size = call.options, call.size
    assert o.scope is not None
    grid = Grid(size, size, o.scope, o.stride, o.dilation)
    sizes = (call.b, grid.n, grid.m, o.h, o.k, o.d_out // o.h, o.u)
    problem = Problem(*sizes, grid, False, False, call.trains, call.device, call.dtype, call.no_kernels)
    plan = choose(problem, o.plan)
    if not plan.takes_layer:
        return Choice(plan)
    scope = reachable_scope(grid)
    return Choice(plan, scope, tuple(plan.window(Grid(size, size, scope, o.stride, o.dilation))))


_kept_choice = lru_cache(maxsize=1024)(_choice)


def fused_layer(
    x: Float[Tensor, "b n d"],
    parts: Sequence[Part],
    table: Float[Tensor, "p k u"],
    position_bias: Float[Tensor, "k"] | None,
    options: LambdaOptions,
    choice: Choice,
    norms: FusedNorms,
    owner: str,
) -> Float[Tensor, "b n h v"]:
    """The output of a layer whose parts are queries, values and keys, of which the first two have norms."""
    assert choice.window is not None
    assert options.scope is not None
    # The operator that reads running statistics on the way has no gradients, and no compiler sees into it. Otherwise
    # they go into the weights.
    infers = norms.kind == "running" and not torch.is_grad_enabled() and not torch.compiler.is_compiling()
    projected = project_jointly(x, parts, fold=not infers).projected
    if choice.scope != options.scope:
        table = crop_table(table, options.scope, choice.scope)
    sizes = (options.h, options.k, options.u)
    y: Tensor
    if infers:
        y = infer(projected, norms.running(), table, position_bias, *sizes, *choice.window)
        return y
    weight = bias = None
    if norms.kind == "batch":
        check_batch(projected, None, owner)
        weight, bias = torch.cat(norms.weights), torch.cat(norms.biases)
    y, mean, var, *_ = layer(projected, weight, bias, table, position_bias, *sizes, norms.eps, *choice.window)
    if norms.kind == "batch":
        together: list[Any] = [norm for _, norm in parts if norm is not None]
        keep_statistics(together, mean, var, projected.shape[0] * projected.shape[1])
    return y


def composed_layer(
    projected: Float[Tensor, "b n c"],
    weight: Float[Tensor, "d"] | None,
    bias: Float[Tensor, "d"] | None,
    table: Float[Tensor, "p k u"],
    position_bias: Float[Tensor, "k"] | None,
    h: int,
    k: int,
    u: int,
    eps: float,
    *window: Any,
) -> Float[Tensor, "b n h v"]:
    """What the operator computes, in operations that torch can differentiate twice."""
    if weight is not None:
        normed, keys = projected.split([len(weight), k * u], 2)
        normed = F.batch_norm(normed.flatten(0, 1), None, None, weight, bias, training=True, eps=eps)
        projected = torch.cat([normed.unflatten(0, projected.shape[:2]), keys], 2)
    q, values, keys = projected.split([h * k, projected.shape[2] - h * k - k * u, k * u], 2)
    values, keys = values.unflatten(2, (-1, u)), keys.unflatten(2, (k, u))
    content = content_lambda(normalise_keys(keys), values)
    if position_bias is not None:
        content = content + position_bias[:, None]
    return composed_term(q.unflatten(2, (h, k)), values, table, content, *window)


COMPOSITIONS["layer"] = composed_layer
