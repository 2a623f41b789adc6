"""Efficient attention: a content lambda in every head, applied to queries that are distributions."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from lambdanets.nn.attention.headed import HeadedLayer
from lambdanets.nn.attention.heads import Projected
from lambdanets.nn.layout import OnTokens
from lambdanets.nn.padding import usable_rows
from lambdanets.ops.attention.double import gather_and_distribute
from lambdanets.ops.masks import Allowed


class EfficientAttention(HeadedLayer):
    """Y_n = softmax_k(q_n)^T (sum_m softmax_m(k)_m v_m^T) in h heads (Shen et al., "Efficient attention").

    Time and memory are linear in the number of positions. Use `Efficient2d` or `EfficientMixer`. A mask may leave out
    rows of the context, not pairs.

    Args:
        d_in: channels of the input.
        d_out: channels of the output, h times the value depth v; `d_in` by default.
        d_context: channels of the context; `d_in` by default.
        h: heads.
        k: depth of queries and keys of a head; v by default.
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
        bias: bool = False,
        project_out: bool | None = None,
    ) -> None:
        super().__init__(d_in, d_out, d_context, h=h, k=k, bias=bias, project_out=project_out)

    def read(
        self, parts: Projected, grid: Sequence[int], other: Sequence[int], allowed: Allowed
    ) -> Float[Tensor, "b n h v"]:
        return gather_and_distribute(*parts, usable_rows(type(self).__name__, allowed))

    def extra_repr(self) -> str:
        return f"{self.d_in}, {self.d_out}, d_context={self.d_context}"


class Efficient2d(EfficientAttention):
    """Efficient attention on maps (b, d, height, width), standing where a Conv2d stands.

    >>> Efficient2d(32)(torch.randn(2, 32, 14, 9)).shape
    torch.Size([2, 32, 14, 9])
    """

    dims = 2


class EfficientMixer(OnTokens, EfficientAttention):
    """Efficient attention on tokens (b, n, d).

    >>> EfficientMixer(32, d_context=48)(torch.randn(2, 100, 32), torch.randn(2, 7, 48)).shape
    torch.Size([2, 100, 32])
    """

    projects_out = True
