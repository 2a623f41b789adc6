"""Embeddings of offsets, one table for each axis of a map."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.nn.tables import RelativeTable
from lambdanets.ops.attention import relative_scores


class AxisTables(nn.Module):
    """r_(m - n) as a sum of one embedding for each axis; every offset of maps up to `size` has a row.

    They start from a normal of std k^-1/2, so that the scores that they add vary as much as the keys' own do.
    """

    def __init__(self, k: int, size: Sequence[int]) -> None:
        super().__init__()
        self.tables = nn.ModuleList(RelativeTable(k, scope=None, size=(extent,), std=k**-0.5) for extent in size)

    @property
    def weights(self) -> list[Float[Tensor, "_ k"]]:
        return [table.weight.squeeze(-1) for table in self.tables]  # type: ignore[operator]

    @property
    def size(self) -> tuple[int, ...]:
        return tuple(table.size[0] for table in self.tables)  # type: ignore[misc, index]

    def scores(
        self, q: Float[Tensor, "b n h k"], queries: Sequence[int], context: Sequence[int]
    ) -> Float[Tensor, "b h n m"]:
        return relative_scores(q, self.weights, queries, context)

    def resize(self, size: Sequence[int]) -> None:
        """Interpolate the tables, as maps are scaled to `size`."""
        for table, extent in zip(self.tables, size, strict=True):
            assert isinstance(table, RelativeTable)
            table.resize((extent,))
