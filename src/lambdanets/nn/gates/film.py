"""FiLM: channels scaled and shifted by what another input says."""

from jaxtyping import Float
from torch import Tensor

from lambdanets.nn.gates.gate import Gate
from lambdanets.nn.layout import OnTokens
from lambdanets.nn.padding import usable_rows
from lambdanets.nn.projections import Dense
from lambdanets.ops.attention.gates import modulate, pooled
from lambdanets.ops.masks import Allowed


class FiLM(Gate):
    """y_n = (1 + s) * x_n + t, where s and t are linear in the mean of the context; use `FiLM2d` or `FiLMMixer`.

    The context is the input itself unless another is given. A mask leaves rows out of the mean.

    Args:
        d_in: channels of the input, and of the output.
        d_context: channels of the context; `d_in` by default.
    """

    reads_context = True

    def __init__(self, d_in: int, d_out: int | None = None, *, d_context: int | None = None) -> None:
        super().__init__(d_in, d_out, d_context)
        self.scale = Dense(self.d_context, d_in)
        self.shift = Dense(self.d_context, d_in)

    def mix(
        self, x: Float[Tensor, "b *grid d"], context: Float[Tensor, "b *other e"], allowed: Allowed
    ) -> Float[Tensor, "b *grid o"]:
        summary = pooled(context.flatten(1, -2), usable_rows(type(self).__name__, allowed))
        return modulate(x, 1.0 + self.scale(summary), self.shift(summary))

    def extra_repr(self) -> str:
        return f"{self.d_in}, d_context={self.d_context}"


class FiLM2d(FiLM):
    """FiLM on maps (b, d, height, width).

    >>> FiLM2d(32, d_context=48)(torch.randn(2, 32, 14, 9), torch.randn(2, 48, 1, 1)).shape
    torch.Size([2, 32, 14, 9])
    """

    dims = 2


class FiLMMixer(OnTokens, FiLM):
    """FiLM on tokens (b, n, d).

    >>> FiLMMixer(32, d_context=48)(torch.randn(2, 100, 32), torch.randn(2, 7, 48)).shape
    torch.Size([2, 100, 32])
    """
