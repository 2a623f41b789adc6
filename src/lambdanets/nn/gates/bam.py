"""BAM: a gate for each channel and one for each position, added."""

from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.nn.arguments import positive
from lambdanets.nn.gates.gate import Gate, reduced
from lambdanets.nn.norms import make_norm, normalise
from lambdanets.ops.attention.gates import pooled
from lambdanets.ops.masks import Allowed


class BAM2d(Gate):
    """y_n = (1 + sigmoid(s + z_n)) * x_n on maps: s = BN(MLP(mean(x))), z = BN(1x1(3x3(3x3(1x1(x))))) (Park et al.).

    The two 3x3 convolutions are dilated; they and the first 1x1 are followed by a rectifier, as the hidden layer is.

    Args:
        d_in: channels of the input, and of the output.
        ratio: how much narrower the hidden layers are; they have at least one channel.
        dilation: of the 3x3 convolutions.

    >>> BAM2d(32)(torch.randn(2, 32, 14, 9)).shape
    torch.Size([2, 32, 14, 9])
    """

    dims = 2
    reads_mask = False

    def __init__(self, d_in: int, d_out: int | None = None, *, ratio: int = 16, dilation: int = 4) -> None:
        super().__init__(d_in, d_out)
        positive(type(self).__name__, ratio=ratio, dilation=dilation)
        d, hidden = d_in, reduced(d_in, ratio)
        self.channel = nn.Sequential(nn.Linear(d, hidden), nn.ReLU(), nn.Linear(hidden, d))
        self.channel_norm = make_norm("batch", d)
        self.spatial = nn.Sequential(
            nn.Conv2d(d, hidden, 1),
            nn.ReLU(),
            nn.Conv2d(hidden, hidden, 3, padding=dilation, dilation=dilation),
            nn.ReLU(),
            nn.Conv2d(hidden, hidden, 3, padding=dilation, dilation=dilation),
            nn.ReLU(),
            nn.Conv2d(hidden, 1, 1),
        )
        self.spatial_norm = make_norm("batch", 1)

    def mix(
        self, x: Float[Tensor, "b i j d"], context: Float[Tensor, "b i j d"], allowed: Allowed
    ) -> Float[Tensor, "b i j d"]:
        owner, grid = type(self).__name__, x.shape[1:-1]
        channel = self.channel(pooled(x.flatten(1, -2)))[:, None]
        spatial = self.spatial(x.movedim(-1, 1)).flatten(2).transpose(1, 2)
        channel = normalise(self.channel_norm, channel, None, owner)
        spatial = normalise(self.spatial_norm, spatial, None, owner)
        gate: Tensor = (channel + spatial).sigmoid().unflatten(1, grid)
        return x * (1.0 + gate)
