"""Both terms of the output at once: in one pass where the plan for the position term can take the content along."""

from dataclasses import replace

from jaxtyping import Bool, Float
from torch import Tensor

from lambdanets.ops.content import content_lambda, content_term
from lambdanets.ops.geometry import Geometry, Grid
from lambdanets.ops.keys import KeyNorm, normalise_keys
from lambdanets.ops.masks import drop_unusable, read_mask
from lambdanets.ops.plans import Inputs, Plan, Problem, choose
from lambdanets.ops.position import check_geometry, position_bias_term, position_term
from lambdanets.ops.precision import in_full_precision


@in_full_precision
def lambda_terms(
    q: Float[Tensor, "b n h k"],
    keys: Float[Tensor, "b m k u"] | None,
    values: Float[Tensor, "b m v u"],
    table: Float[Tensor, "p k u"] | None,
    geometry: Geometry,
    *,
    key_norm: KeyNorm = "softmax",
    position_bias: Float[Tensor, "k"] | None = None,
    mask: Bool[Tensor, "..."] | None = None,
    plan: str | Plan | None = None,
) -> Float[Tensor, "b n h v"]:
    """Y = Q lc + Q lp, without the term whose keys or table are None; a causal grid makes both terms causal.

    >>> import torch
    >>> from lambdanets.ops import Grid
    >>> q, keys, values = torch.randn(2, 35, 4, 16), torch.randn(2, 35, 16, 1), torch.randn(2, 35, 3, 1)
    >>> lambda_terms(q, keys, values, torch.randn(9, 16, 1), Grid.of((5, 7), scope=3)).shape
    torch.Size([2, 35, 4, 3])
    """
    causal = geometry.causal if isinstance(geometry, Grid) else False
    if keys is not None and table is not None and not causal:
        check_geometry(q, values, table, geometry)
        allowed = read_mask(mask, q.shape[0], q.shape[1], values.shape[1])
        inputs = Inputs(q, drop_unusable(values, allowed.usable()), table, geometry, allowed)
        plan = choose(Problem.of(inputs), plan)
        if plan.takes_content and allowed.pairs is None:  # one content lambda serves all queries
            normalised = normalise_keys(drop_unusable(keys, allowed.rows), key_norm, allowed.rows)
            content = content_lambda(normalised, inputs.values)
            if position_bias is not None:
                content = content + position_bias[:, None]
            return plan.run(replace(inputs, content=content))
    y = None if table is None else position_term(q, values, table, geometry, mask=mask, plan=plan)
    if y is not None and position_bias is not None:
        y = y + position_bias_term(q, position_bias)
    if keys is None:
        assert y is not None
        return y
    content = content_term(q, keys, values, key_norm=key_norm, mask=mask, causal=causal)
    return content if y is None else content + y
