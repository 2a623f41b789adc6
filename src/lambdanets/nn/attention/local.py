"""Local attention: every position attends to the window around it (stand-alone self-attention)."""

from collections.abc import Sequence
from typing import get_args

from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.nn.arguments import one_of, per_axis, window
from lambdanets.nn.attention.global_attention import Positions
from lambdanets.nn.attention.headed import HeadedLayer
from lambdanets.nn.attention.heads import Projected
from lambdanets.nn.layout import OnTokens
from lambdanets.nn.padding import usable_on_map
from lambdanets.nn.tables import RelativeTable
from lambdanets.ops.attention.windows import attend_locally
from lambdanets.ops.masks import Allowed


def odd_window(owner: str, dims: int, scope: int | Sequence[int]) -> tuple[int, ...]:
    """An odd number for every axis; unlike lambda layers, these have no global scope."""
    sides = window(owner, dims, per_axis(owner, dims, scope=scope))
    assert sides is not None
    return sides


class Local(HeadedLayer):
    """Y_n = sum_o softargmax_o(k^-1/2 q_n . (k_(n + o) + r_o)) v_(n + o) over a window; use `Local2d` or `LocalMixer`.

    Positions outside of the map do not exist: at its edge a window is smaller. r_o is a sum of one embedding for each
    axis.

    Args:
        d_in: channels of the input.
        d_out: channels of the output, h times the value depth v; `d_in` by default.
        h: heads.
        k: depth of queries and keys of a head; v by default.
        scope: the side of the window, odd, for all axes or for each of them.
        positions: "relative", with a table of `scope` rows for each axis, or "none".
        causal: a position uses what comes up to itself, in raster order.
        bias: an offset in every projection.
        project_out: a last projection of the output, W_O; by default on tokens only, as on maps a convolution follows.
    """

    reads_context = False

    def __init__(
        self,
        d_in: int,
        d_out: int | None = None,
        *,
        h: int = 4,
        k: int | None = None,
        scope: int | Sequence[int] = 7,
        positions: Positions = "relative",
        causal: bool = False,
        bias: bool = False,
        project_out: bool | None = None,
    ) -> None:
        super().__init__(d_in, d_out, h=h, k=k, bias=bias, project_out=project_out)
        owner = type(self).__name__
        one_of(owner, positions=(positions, get_args(Positions)))
        one_of(owner, causal=(causal, (False, True)))
        self.scope, self.causal = odd_window(owner, self.dims, scope), causal
        self.offsets = nn.ModuleList()
        if positions == "relative":  # scores vary as much by positions as by keys, at first
            k = self.heads.k
            self.offsets.extend(RelativeTable(k, scope=(side,), std=k**-0.5) for side in self.scope)

    def read(
        self, parts: Projected, grid: Sequence[int], other: Sequence[int], allowed: Allowed
    ) -> Float[Tensor, "b n h v"]:
        y = attend_locally(
            *(part.unflatten(1, grid) for part in parts),
            scope=self.scope,
            tables=[table.weight.squeeze(-1) for table in self.offsets],  # type: ignore[operator]
            usable=usable_on_map(type(self).__name__, allowed, parts.q.shape[0], grid),
            causal=self.causal,
        )
        return y.flatten(1, -3)

    def extra_repr(self) -> str:
        return f"{self.d_in}, {self.d_out}, scope={self.scope}, causal={self.causal}"


class Local2d(Local):
    """Local attention on maps (b, d, height, width), standing where a Conv2d stands.

    >>> Local2d(32, scope=5)(torch.randn(2, 32, 14, 9)).shape
    torch.Size([2, 32, 14, 9])
    """

    dims = 2


class LocalMixer(OnTokens, Local):
    """Local attention on tokens (b, n, d).

    >>> LocalMixer(32, scope=65, causal=True)(torch.randn(2, 100, 32)).shape
    torch.Size([2, 100, 32])
    """

    projects_out = True
