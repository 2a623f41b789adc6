"""Kernelised linear attention: a content lambda in every head, normalised by what the query finds."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from lambdanets.nn.arguments import one_of
from lambdanets.nn.attention.headed import HeadedLayer
from lambdanets.nn.attention.heads import Projected
from lambdanets.nn.layout import OnTokens
from lambdanets.nn.padding import usable_rows
from lambdanets.ops.attention.linear import linear_attention
from lambdanets.ops.masks import Allowed


class LinearAttention(HeadedLayer):
    """Y_n = phi(q_n)^T (sum_m phi(k_m) v_m^T) / (phi(q_n)^T sum_m phi(k_m)) in h heads, phi(x) = elu(x) + 1.

    Time and memory are linear in the number of positions, causal or not. Use `Linear2d` or `LinearMixer`. A mask may
    leave out rows of the context, not pairs.

    Args:
        d_in: channels of the input.
        d_out: channels of the output, h times the value depth v; `d_in` by default.
        d_context: channels of the context; `d_in` by default.
        h: heads.
        k: depth of queries and keys of a head; v by default.
        causal: a position uses what comes up to itself, in raster order.
        bias: an offset in every projection.
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
        causal: bool = False,
        bias: bool = False,
        project_out: bool | None = None,
    ) -> None:
        super().__init__(d_in, d_out, d_context, h=h, k=k, bias=bias, project_out=project_out)
        one_of(type(self).__name__, causal=(causal, (False, True)))
        self.causal = causal

    def read(
        self, parts: Projected, grid: Sequence[int], other: Sequence[int], allowed: Allowed
    ) -> Float[Tensor, "b n h v"]:
        owner = type(self).__name__
        if self.causal and tuple(grid) != tuple(other):
            raise ValueError(
                f"{owner}: causal needs x and context of the same size, got {tuple(grid)} and {tuple(other)}"
            )
        return linear_attention(*parts, rows=usable_rows(owner, allowed), causal=self.causal)

    def extra_repr(self) -> str:
        return f"{self.d_in}, {self.d_out}, d_context={self.d_context}, causal={self.causal}"


class Linear2d(LinearAttention):
    """Linear attention on maps (b, d, height, width), standing where a Conv2d stands.

    >>> Linear2d(32)(torch.randn(2, 32, 14, 9)).shape
    torch.Size([2, 32, 14, 9])
    """

    dims = 2


class LinearMixer(OnTokens, LinearAttention):
    """Linear attention on tokens (b, n, d).

    >>> LinearMixer(32, causal=True)(torch.randn(2, 100, 32)).shape
    torch.Size([2, 100, 32])
    """

    projects_out = True
