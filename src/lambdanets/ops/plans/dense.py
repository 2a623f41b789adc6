"""The position term over all pairs: for any geometry and any mask."""

import torch
from jaxtyping import Float
from torch import Tensor

from lambdanets.ops.geometry import Geometry, embeddings
from lambdanets.ops.masks import Allowed
from lambdanets.ops.pairs import contract, over_queries


def dense(
    q: Float[Tensor, "b n h k"],
    values: Float[Tensor, "b m v u"],
    table: Float[Tensor, "p k u"],
    geometry: Geometry,
    allowed: Allowed,
) -> Float[Tensor, "b n h v"]:
    """E for some queries at a time, contracted with them; rows that no query may use are already zero in `values`."""
    b, n, h, k = q.shape
    m, u = values.shape[1], values.shape[3]

    def some_queries(part: slice) -> Float[Tensor, "b c h v"]:
        at = torch.arange(part.start, part.stop, device=q.device)
        pairs = None if allowed.pairs is None else allowed.pairs[:, part]
        return contract(q[:, part], embeddings(table, geometry, at), values, pairs)

    return over_queries(some_queries, n, per_query=m * u * max(b * h, k if geometry.is_shared else b * k))
