"""Attention to learned sums over the positions of the context, as in Linformer."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.nn.arguments import per_axis, positive
from lambdanets.nn.attention.headed import HeadedLayer
from lambdanets.nn.attention.heads import Projected
from lambdanets.nn.layout import OnTokens
from lambdanets.nn.padding import usable_rows
from lambdanets.ops.attention.projected import projected_attention
from lambdanets.ops.masks import Allowed


class PositionSums(nn.Module):
    """`rank` weighted sums over the positions of maps up to `size`; on smaller ones the weights behind are unused.

    They start from a normal of std m^-1/2, m the number of positions, so that a sum varies as much as its terms do.
    """

    weight: Float[Tensor, "r *size"]

    def __init__(self, rank: int, size: Sequence[int]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rank, *size))
        nn.init.normal_(self.weight, std=math.prod(size) ** -0.5)

    @property
    def size(self) -> tuple[int, ...]:
        return tuple(self.weight.shape[1:])

    def matrix(self, size: Sequence[int]) -> Float[Tensor, "r m"]:
        """The weights of the positions of a map of `size`, in raster order."""
        weight = self.weight
        for axis, extent in enumerate(size, start=1):  # not as slices: export cannot tell whether they are all of it
            weight = weight.index_select(axis, torch.arange(extent, device=weight.device))
        return weight.flatten(1)

    def resize(self, size: Sequence[int]) -> None:
        """Stretch the weights to maps of `size`, and scale them, so that a sum over more positions is no larger."""
        if tuple(size) == self.size:
            return
        mode = ("linear", "bilinear", "trilinear")[len(size) - 1]
        stretched = F.interpolate(self.weight.detach()[None], tuple(size), mode=mode, align_corners=False)[0]
        scaled = stretched * (math.prod(self.size) / math.prod(size))
        self.weight = nn.Parameter(scaled, requires_grad=self.weight.requires_grad)

    def extra_repr(self) -> str:
        return f"rank={self.weight.shape[0]}, size={self.size}"


class ProjectedAttention(HeadedLayer):
    """K' = E K, V' = F V, Y_n = sum_r softargmax_r(k^-1/2 q_n . k'_r) v'_r in h heads (Linformer).

    E and F are learned, `rank` rows each, and serve all heads. Time and memory are linear in the number of positions.
    Use `Projected2d` or `ProjectedMixer`. A mask may leave out rows of the context, not pairs.

    Args:
        d_in: channels of the input.
        d_out: channels of the output, h times the value depth v; `d_in` by default.
        d_context: channels of the context; `d_in` by default.
        h: heads.
        k: depth of queries and keys of a head; v by default.
        size: the largest context, a map or a number of tokens.
        rank: rows that a context becomes.
        bias: an offset in every projection of channels.
        project_out: a last projection of the output, W_O; by default on tokens only.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int | None = None,
        *,
        d_context: int | None = None,
        h: int = 4,
        k: int | None = None,
        size: int | Sequence[int],
        rank: int = 64,
        bias: bool = False,
        project_out: bool | None = None,
    ) -> None:
        super().__init__(d_in, d_out, d_context, h=h, k=k, bias=bias, project_out=project_out)
        owner = type(self).__name__
        positive(owner, rank=rank)
        extents = per_axis(owner, self.dims, size=size)
        self.of_keys = PositionSums(rank, extents)
        self.of_values = PositionSums(rank, extents)

    def resize(self, size: int | Sequence[int]) -> None:
        """Fit the sums to contexts of `size`; make the optimiser afterwards."""
        extents = per_axis(type(self).__name__, self.dims, size=size)
        self.of_keys.resize(extents)
        self.of_values.resize(extents)

    def read(
        self, parts: Projected, grid: Sequence[int], other: Sequence[int], allowed: Allowed
    ) -> Float[Tensor, "b n h v"]:
        if any(extent > most for extent, most in zip(other, self.of_keys.size, strict=True)):
            raise ValueError(
                f"{type(self).__name__}: a context of size {tuple(other)} is larger than its sums for "
                f"{self.of_keys.size}; layer.resize(size) interpolates them"
            )
        rows = usable_rows(type(self).__name__, allowed)
        return projected_attention(*parts, self.of_keys.matrix(other), self.of_values.matrix(other), rows)

    def extra_repr(self) -> str:
        return f"{self.d_in}, {self.d_out}, d_context={self.d_context}"


class Projected2d(ProjectedAttention):
    """Attention to a projected context on maps (b, d, height, width), standing where a Conv2d stands.

    >>> Projected2d(32, size=14, rank=16)(torch.randn(2, 32, 14, 9)).shape
    torch.Size([2, 32, 14, 9])
    """

    dims = 2


class ProjectedMixer(OnTokens, ProjectedAttention):
    """Attention to a projected context on tokens (b, n, d).

    >>> ProjectedMixer(32, size=128, rank=16)(torch.randn(2, 100, 32)).shape
    torch.Size([2, 100, 32])
    """

    projects_out = True
