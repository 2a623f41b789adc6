"""All pairs, query first: Y = (q . E) V, some queries at a time. For any geometry and any mask."""

import torch
from jaxtyping import Float
from torch import Tensor

from lambdanets.ops.geometry import embeddings
from lambdanets.ops.pairs import GATHER_OPERATIONS, contract, gather_bytes, over_queries
from lambdanets.ops.plans.plan import Plan
from lambdanets.ops.plans.problem import Cost, Inputs, Problem


class QueryFirst(Plan):
    """h (k + v) multiplies for each pair; E exists for some queries only."""

    name = "query_first"
    serves_all_sizes = True

    def cost(self, problem: Problem) -> Cost:
        p = problem
        products = p.passes * p.b * p.n * p.m * p.u * p.h * (p.k + p.v)
        return Cost(1.5 * products, gather_bytes(p.n * p.m * p.k * p.u, p.trains), GATHER_OPERATIONS)

    def run(self, inputs: Inputs) -> Float[Tensor, "b n h v"]:
        q, values, geometry, allowed = inputs.q, inputs.values, inputs.geometry, inputs.allowed
        b, n, h, k = q.shape
        m, u = values.shape[1], values.shape[3]

        def some_queries(part: slice) -> Float[Tensor, "b c h v"]:
            at = torch.arange(part.start, part.stop, device=q.device)
            pairs = None if allowed.pairs is None else allowed.pairs[:, part]
            return contract(q[:, part], embeddings(inputs.table, geometry, at), values, pairs)

        return over_queries(some_queries, n, per_query=m * u * max(b * h, k if geometry.is_shared else b * k))
