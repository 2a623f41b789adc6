"""What the layers share whose heads of queries read keys and values."""

from collections.abc import Sequence
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from lambdanets.nn.attention.heads import Heads, Projected
from lambdanets.nn.context_layer import ContextLayer
from lambdanets.ops.masks import Allowed


class HeadedLayer(ContextLayer):
    """Projections before, W_O behind; a subclass says in `read` what the heads do between them."""

    projects_out: ClassVar[bool] = False  # by default; on maps a convolution follows

    def __init__(
        self,
        d_in: int,
        d_out: int | None,
        d_context: int | None = None,
        *,
        h: int,
        k: int | None,
        g: int | None = None,
        bias: bool,
        project_out: bool | None,
    ) -> None:
        super().__init__(d_in, d_out, d_context)
        project_out = self.projects_out if project_out is None else project_out
        self.heads = Heads(
            type(self).__name__, d_in, self.d_out, self.d_context, h=h, k=k, g=g, bias=bias, project_out=project_out
        )

    def read(
        self, parts: Projected, grid: Sequence[int], other: Sequence[int], allowed: Allowed
    ) -> Float[Tensor, "b n h v"]:
        """Queries on a grid, keys and values on another, both in raster order."""
        raise NotImplementedError

    def mix(
        self, x: Float[Tensor, "b *grid d"], context: Float[Tensor, "b *other e"], allowed: Allowed
    ) -> Float[Tensor, "b *grid o"]:
        grid, other = x.shape[1:-1], context.shape[1:-1]
        asking = x.flatten(1, -2)
        parts = self.heads(asking, asking if x is context else context.flatten(1, -2))
        joined: Tensor = self.heads.join(self.read(parts, grid, other, allowed)).unflatten(1, grid)
        return joined
