"""Embeddings of places: of positions themselves, or of offsets, one table for each axis of a map."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.nn.arguments import positive
from lambdanets.nn.tables import RelativeTable
from lambdanets.ops.attention import relative_scores


class PositionTable(nn.Module):
    """A learned embedding for each of `size` positions, small at first."""

    weight: Float[Tensor, "p d"]

    def __init__(self, size: int, d: int) -> None:
        super().__init__()
        positive(type(self).__name__, size=size, d=d)
        self.weight = nn.Parameter(torch.empty(size, d))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=0.02)


class AbsolutePositions(PositionTable):
    """x_n + e_n on tokens (b, n, d), with a learned embedding e for each of up to `size` positions.

    >>> AbsolutePositions(100, 32)(torch.randn(2, 7, 32)).shape
    torch.Size([2, 7, 32])
    """

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        size, d = self.weight.shape
        if x.ndim != 3 or x.shape[1] > size or x.shape[2] != d:
            raise ValueError(
                f"{type(self).__name__}: x must be (b, n, {d}) with n up to size={size}, got shape {tuple(x.shape)}"
            )
        return x + self.weight[: x.shape[1]]

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, {self.weight.shape[1]}"


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

    def check(self, owner: str, *grids: Sequence[int]) -> None:
        """Refuse maps that have offsets without a row, in the name of the layer that was made."""
        largest = tuple(map(max, zip(*grids, strict=True)))
        if any(extent > most for extent, most in zip(largest, self.size, strict=True)):
            raise ValueError(
                f"{owner}: a map of size {largest} is larger than its positions for {self.size}; "
                "layer.resize(size) interpolates them"
            )

    def scores(
        self, q: Float[Tensor, "b n h k"], queries: Sequence[int], context: Sequence[int]
    ) -> Float[Tensor, "b h n m"]:
        return relative_scores(q, self.weights, queries, context)

    def resize(self, size: Sequence[int]) -> None:
        """Interpolate the tables, as maps are scaled to `size`."""
        for table, extent in zip(self.tables, size, strict=True):
            assert isinstance(table, RelativeTable)
            table.resize((extent,))
