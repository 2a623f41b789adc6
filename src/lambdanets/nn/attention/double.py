"""Double attention: gather descriptors from all positions, distribute them to each."""

from jaxtyping import Float
from torch import Tensor

from lambdanets.nn.arguments import positive
from lambdanets.nn.attention.heads import Heads
from lambdanets.nn.context_layer import ContextLayer
from lambdanets.nn.layout import OnTokens
from lambdanets.nn.padding import usable_rows
from lambdanets.nn.projections import Dense
from lambdanets.ops.attention.double import gather_and_distribute
from lambdanets.ops.masks import Allowed


class DoubleAttention(ContextLayer):
    """G_k = sum_m softmax_m(theta(c))[m, k] phi(c_m),  Y_n = W_O sum_k softmax_k(rho(x_n))[k] G_k (A^2-Nets).

    It is efficient attention with one head that is narrower than the layer. Use `Double2d` or `DoubleMixer`. A mask may
    leave out rows of the context, not pairs.

    Args:
        d_in: channels of the input.
        d_out: channels of the output; `d_in` by default.
        d_context: channels of the context, from which is gathered; `d_in` by default.
        k: descriptors that are gathered; a quarter of `d_in` by default, as in the paper.
        v: depth of a descriptor; a quarter of `d_in` by default.
        bias: an offset in every projection.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int | None = None,
        *,
        d_context: int | None = None,
        k: int | None = None,
        v: int | None = None,
        bias: bool = False,
    ) -> None:
        super().__init__(d_in, d_out, d_context)
        quarter = max(d_in // 4, 1)
        k, v = quarter if k is None else k, quarter if v is None else v
        positive(type(self).__name__, k=k, v=v)
        self.heads = Heads(type(self).__name__, d_in, v, self.d_context, h=1, k=k, bias=bias)
        self.out = Dense(v, self.d_out, bias)

    def mix(
        self, x: Float[Tensor, "b *grid d"], context: Float[Tensor, "b *other e"], allowed: Allowed
    ) -> Float[Tensor, "b *grid o"]:
        asking = x.flatten(1, -2)
        q, keys, values = self.heads(asking, asking if x is context else context.flatten(1, -2))
        y = gather_and_distribute(q, keys, values, usable_rows(type(self).__name__, allowed))
        wide: Tensor = self.out(y.flatten(2)).unflatten(1, x.shape[1:-1])
        return wide

    def extra_repr(self) -> str:
        return f"{self.d_in}, {self.d_out}, d_context={self.d_context}"


class Double2d(DoubleAttention):
    """Double attention on maps (b, d, height, width), standing where a Conv2d stands.

    >>> Double2d(32)(torch.randn(2, 32, 14, 9)).shape
    torch.Size([2, 32, 14, 9])
    """

    dims = 2


class DoubleMixer(OnTokens, DoubleAttention):
    """Double attention on tokens (b, n, d).

    >>> DoubleMixer(32)(torch.randn(2, 100, 32)).shape
    torch.Size([2, 100, 32])
    """
