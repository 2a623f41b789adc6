"""All pairs, query first: Y = (q . E) V, some queries at a time. For any geometry and any mask."""

import torch
from jaxtyping import Float
from torch import Tensor

from lambdanets.ops.geometry import Geometry, embeddings
from lambdanets.ops.masks import Allowed
from lambdanets.ops.pairs import contract, gather_cost, over_queries
from lambdanets.ops.plans.problem import Cost, Problem


class QueryFirst:
    """h (k + v) multiplies for each pair; E exists for some queries only."""

    name = "query_first"

    def supports(self, problem: Problem) -> str | None:
        return None

    def automatic(self, problem: Problem) -> bool:
        return True

    def cost(self, problem: Problem) -> Cost:
        p = problem
        products = p.passes * p.b * p.n * p.m * p.u * p.h * (p.k + p.v)
        return Cost(1.5 * products, gather_cost(p.n * p.m * p.k * p.u, p.trains))

    def run(
        self,
        q: Float[Tensor, "b n h k"],
        values: Float[Tensor, "b m v u"],
        table: Float[Tensor, "p k u"],
        geometry: Geometry,
        allowed: Allowed,
    ) -> Float[Tensor, "b n h v"]:
        b, n, h, k = q.shape
        m, u = values.shape[1], values.shape[3]

        def some_queries(part: slice) -> Float[Tensor, "b c h v"]:
            at = torch.arange(part.start, part.stop, device=q.device)
            pairs = None if allowed.pairs is None else allowed.pairs[:, part]
            return contract(q[:, part], embeddings(table, geometry, at), values, pairs)

        return over_queries(some_queries, n, per_query=m * u * max(b * h, k if geometry.is_shared else b * k))
