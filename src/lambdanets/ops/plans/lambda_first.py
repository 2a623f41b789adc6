"""All pairs, lambda first (Eq. 4): lp = E V as one matrix product for the whole batch, some queries at a time."""

import torch
from jaxtyping import Float
from torch import Tensor

from lambdanets.ops.content import apply_lambda
from lambdanets.ops.pairs import GATHER_OPERATIONS, gather_bytes, over_queries, position_lambda
from lambdanets.ops.plans.plan import Plan
from lambdanets.ops.plans.problem import Cost, Inputs, Problem


class LambdaFirst(Plan):
    """k v multiplies for each pair, in products that are large: (n k) by (m u) by (b v)."""

    name = "lambda_first"

    def supports(self, problem: Problem) -> str | None:
        if not problem.geometry.is_shared:
            return "it has one E for the whole batch, and the relation differs between examples"
        if problem.per_example:
            return "it has one E for the whole batch, and the mask differs between examples"
        return super().supports(problem)

    def cost(self, problem: Problem) -> Cost:
        p = problem
        products = p.passes * p.b * p.n * (p.m * p.u * p.k * p.v + p.h * p.k * p.v)
        moved = gather_bytes(p.n * p.m * p.k * p.u, p.trains) + 8 * p.passes * p.b * p.n * p.k * p.v
        return Cost(products, moved, GATHER_OPERATIONS)

    def run(self, inputs: Inputs) -> Float[Tensor, "b n h v"]:
        q, values, allowed = inputs.q, inputs.values, inputs.allowed
        b, n, _, k = q.shape
        _, m, v, u = values.shape

        def some_queries(part: slice) -> Float[Tensor, "b c h v"]:
            at = torch.arange(part.start, part.stop, device=q.device)
            pairs = None if allowed.pairs is None else allowed.pairs[:, part]
            return apply_lambda(q[:, part], position_lambda(values, inputs.table, inputs.geometry, at, pairs))

        return over_queries(some_queries, n, per_query=k * max(m * u, b * v))
