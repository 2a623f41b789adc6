"""Multi-head attention over all positions, with relative positions or none."""

from collections.abc import Sequence
from typing import Literal, get_args

from jaxtyping import Float
from torch import Tensor

from lambdanets.nn.arguments import one_of, per_axis
from lambdanets.nn.attention.headed import HeadedLayer
from lambdanets.nn.attention.heads import Projected
from lambdanets.nn.attention.positions import AxisTables
from lambdanets.nn.layout import OnTokens
from lambdanets.ops.attention import attend
from lambdanets.ops.masks import Allowed

Positions = Literal["relative", "none"]


class Attention(HeadedLayer):
    """Y_n = sum_m softargmax_m(k^-1/2 q_n . (k_m + r_(m - n))) v_m in h heads; use `Attention2d` or `AttentionMixer`.

    Args:
        d_in: channels of the input.
        d_out: channels of the output, h times the value depth v; `d_in` by default.
        d_context: channels of the context; `d_in` by default.
        h: heads.
        k: depth of queries and keys of a head; v by default.
        g: heads of keys and values, each serving h / g of those of queries; h by default, 1 is multiquery attention.
        positions: "relative", with a table for each axis, or "none".
        size: the largest map; relative positions need it.
        causal: a position uses what comes up to itself, in raster order.
        bias: an offset in every projection.
        project_out: a last projection of the output, W_O; by default on tokens only, as on maps a convolution follows.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int | None = None,
        *,
        d_context: int | None = None,
        h: int = 4,
        k: int | None = None,
        g: int | None = None,
        positions: Positions = "none",
        size: int | Sequence[int] | None = None,
        causal: bool = False,
        bias: bool = False,
        project_out: bool | None = None,
    ) -> None:
        super().__init__(d_in, d_out, d_context, h=h, k=k, g=g, bias=bias, project_out=project_out)
        owner = type(self).__name__
        one_of(owner, positions=(positions, get_args(Positions)))
        one_of(owner, causal=(causal, (False, True)))
        self.causal = causal
        self.offsets: AxisTables | None = None
        if positions == "relative":
            if size is None:
                raise ValueError(f"{owner}: relative positions need size, the largest map, got size=None")
            self.offsets = AxisTables(self.heads.k, per_axis(owner, self.dims, size=size))

    def resize(self, size: int | Sequence[int]) -> None:
        """Fit the relative positions, if any, to maps of `size`."""
        if self.offsets is not None:
            self.offsets.resize(per_axis(type(self).__name__, self.dims, size=size))

    def read(
        self, parts: Projected, grid: Sequence[int], other: Sequence[int], allowed: Allowed
    ) -> Float[Tensor, "b n h v"]:
        q, keys, values = parts
        bias, beta = None, self.heads.k**-0.5
        if self.offsets is not None:
            self.offsets.check(type(self).__name__, grid, other)
            bias = self.offsets.scores(q * beta, grid, other)
        return attend(q, keys, values, bias=bias, mask=allowed.mask, causal=self.causal, beta=beta)

    def extra_repr(self) -> str:
        return f"{self.d_in}, {self.d_out}, d_context={self.d_context}, causal={self.causal}"


class Attention2d(Attention):
    """Attention on maps (b, d, height, width), standing where a Conv2d stands.

    >>> Attention2d(32, positions="relative", size=14)(torch.randn(2, 32, 14, 9)).shape
    torch.Size([2, 32, 14, 9])
    """

    dims = 2


class AttentionMixer(OnTokens, Attention):
    """Attention on tokens (b, n, d): self-attention, or cross-attention with a context.

    >>> AttentionMixer(32, d_context=48)(torch.randn(2, 100, 32), torch.randn(2, 7, 48)).shape
    torch.Size([2, 100, 32])
    """

    projects_out = True
