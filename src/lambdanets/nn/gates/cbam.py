"""CBAM: a gate for each channel, then one for each position."""

from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.nn.arguments import positive
from lambdanets.nn.gates.gate import Gate, reduced
from lambdanets.nn.norms import make_norm, normalise
from lambdanets.ops.attention.gates import mean_and_largest, modulate, pooled
from lambdanets.ops.masks import Allowed


class CBAM2d(Gate):
    """y_n = z_n * (s * x_n) on maps, each from means and largest values (Woo et al.).

        s = sigmoid(MLP(mean_n x) + MLP(max_n x))
        z = sigmoid(BN(7x7([mean_d(s * x), max_d(s * x)])))

    Args:
        d_in: channels of the input, and of the output.
        ratio: how much narrower the hidden layer is; it has at least one channel.

    >>> CBAM2d(32)(torch.randn(2, 32, 14, 9)).shape
    torch.Size([2, 32, 14, 9])
    """

    dims = 2
    reads_mask = False

    def __init__(self, d_in: int, d_out: int | None = None, *, ratio: int = 16) -> None:
        super().__init__(d_in, d_out)
        positive(type(self).__name__, ratio=ratio)
        hidden = reduced(d_in, ratio)
        self.channel = nn.Sequential(
            nn.Linear(d_in, hidden, bias=False), nn.ReLU(), nn.Linear(hidden, d_in, bias=False)
        )
        self.spatial = nn.Conv2d(2, 1, 7, padding=3, bias=False)
        self.spatial_norm = make_norm("batch", 1)

    def mix(
        self, x: Float[Tensor, "b i j d"], context: Float[Tensor, "b i j d"], allowed: Allowed
    ) -> Float[Tensor, "b i j d"]:
        flat = x.flatten(1, -2)
        x = modulate(x, (self.channel(pooled(flat)) + self.channel(flat.amax(1))).sigmoid())
        spatial = self.spatial(mean_and_largest(x).movedim(-1, 1)).flatten(2).transpose(1, 2)
        spatial = normalise(self.spatial_norm, spatial, None, type(self).__name__)
        gate: Tensor = spatial.sigmoid().unflatten(1, x.shape[1:-1])
        return x * gate
