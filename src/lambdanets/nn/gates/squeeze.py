"""Squeeze-and-excitation: one lambda for all positions, and that diagonal."""

from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.nn.arguments import positive
from lambdanets.nn.gates.gate import Gate
from lambdanets.nn.layout import OnTokens
from lambdanets.nn.padding import usable_rows
from lambdanets.ops.attention.gates import modulate, pooled
from lambdanets.ops.masks import Allowed


class SqueezeExcitation(nn.Module):
    """Channels weighed by what the whole map says: x sigmoid(W relu(V mean(x)))."""

    def __init__(self, d: int, ratio: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(d, d // ratio, 1)
        self.expand = nn.Conv2d(d // ratio, d, 1)

    def forward(self, x: Float[Tensor, "b d i j"]) -> Float[Tensor, "b d i j"]:
        return x * self.excite(x.mean((2, 3), keepdim=True))

    def excite(self, squeezed: Float[Tensor, "b d 1 1"]) -> Float[Tensor, "b d 1 1"]:
        """The weights of the channels, from their means."""
        weights: Tensor = self.expand(self.reduce(squeezed).relu())
        return weights.sigmoid()


class SqueezeExcitationLayer(Gate):
    """y_n = s * x_n, s = sigmoid(W relu(V mean(x))), as a layer of the family.

    Use `SqueezeExcitation2d` or `SqueezeExcitationMixer`. A mask leaves rows out of the mean.

    Args:
        d_in: channels of the input, and of the output.
        ratio: how much narrower the hidden layer is; it has at least one channel.
    """

    def __init__(self, d_in: int, d_out: int | None = None, *, ratio: int = 16) -> None:
        super().__init__(d_in, d_out)
        positive(type(self).__name__, ratio=ratio)
        self.gate = SqueezeExcitation(d_in, min(ratio, d_in))

    def mix(
        self, x: Float[Tensor, "b *grid d"], context: Float[Tensor, "b *other e"], allowed: Allowed
    ) -> Float[Tensor, "b *grid o"]:
        squeezed = pooled(context.flatten(1, -2), usable_rows(type(self).__name__, allowed))
        return modulate(x, self.gate.excite(squeezed[..., None, None])[..., 0, 0])


class SqueezeExcitation2d(SqueezeExcitationLayer):
    """Squeeze-and-excitation on maps (b, d, height, width).

    >>> SqueezeExcitation2d(32)(torch.randn(2, 32, 14, 9)).shape
    torch.Size([2, 32, 14, 9])
    """

    dims = 2


class SqueezeExcitationMixer(OnTokens, SqueezeExcitationLayer):
    """Squeeze-and-excitation on tokens (b, n, d).

    >>> SqueezeExcitationMixer(32)(torch.randn(2, 100, 32)).shape
    torch.Size([2, 100, 32])
    """
