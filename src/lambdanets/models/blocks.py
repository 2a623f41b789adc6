"""The parts of a ResNet: stems and bottlenecks."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.models.middle import Conv2d, Middle, Place
from lambdanets.nn.gates.squeeze import SqueezeExcitation
from lambdanets.nn.hooks import has_hooks
from lambdanets.nn.rectified import Rectified, norm_then_relu, norms_then_relu

EXPANSION = 4

# The paper's two, named by their epochs of training, and one for images of 8 to 64 pixels.
Setup = Literal["90", "350", "small"]


def conv_norm_act(d_in: int, d_out: int, side: int, stride: int = 1) -> Rectified:
    return Rectified(Conv2d(d_in, d_out, side, stride), nn.BatchNorm2d(d_out), nn.ReLU(inplace=True))


def make_stem(setup: Setup, in_chans: int, width: int) -> nn.Sequential:
    """From an image to `width` channels at a quarter of the resolution, or at full resolution if small."""
    if setup == "small":
        return conv_norm_act(in_chans, width, 3)
    if setup == "90":
        return nn.Sequential(conv_norm_act(in_chans, width, 7, 2), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(
        conv_norm_act(in_chans, width // 2, 3, 2),
        conv_norm_act(width // 2, width // 2, 3),
        conv_norm_act(width // 2, width, 3),
        conv_norm_act(width, width, 3, 2),
    )


def make_shortcut(setup: Setup, d_in: int, d_out: int, stride: int) -> nn.Sequential:
    """The projection shortcut of the first block of a stage; ResNet-D pools before it."""
    pooled = setup == "350" and stride > 1
    pool = [nn.AvgPool2d(2, stride, ceil_mode=True, count_include_pad=False)] if pooled else []
    projection = Conv2d(d_in, d_out, 1, 1 if pooled else stride)
    return nn.Sequential(*pool, projection, nn.BatchNorm2d(d_out))


class DropPath(nn.Module):
    """Stochastic depth: in training, drops the residual of an example with probability `rate` and rescales others."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Float[Tensor, "b ..."]) -> Float[Tensor, "b ..."]:
        if not self.training or self.rate == 0.0:
            return x
        kept = torch.rand(x.shape[0], *[1] * (x.ndim - 1), device=x.device) >= self.rate
        return x * kept.to(x.dtype) / (1.0 - self.rate)

    def extra_repr(self) -> str:
        return f"rate={self.rate}"


class Bottleneck(nn.Module):
    """1x1 convolution to the width of its place, the middle layer, 1x1 to four times that, each normed; a shortcut."""

    def __init__(
        self,
        d_in: int,
        place: Place,
        middle: Middle,
        *,
        setup: Setup,
        se_ratio: int | None = None,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        d_out = EXPANSION * place.width
        self.reduce = conv_norm_act(d_in, place.width, 1)
        self.middle = middle(place)
        self.middle_norm = Rectified(nn.BatchNorm2d(place.width), nn.ReLU(inplace=True))
        last_norm = nn.BatchNorm2d(d_out)
        nn.init.zeros_(last_norm.weight)  # every block starts as its shortcut
        self.expand = nn.Sequential(Conv2d(place.width, d_out, 1), last_norm)
        self.se = nn.Identity() if se_ratio is None else SqueezeExcitation(d_out, se_ratio)
        self.drop_path = DropPath(drop_path)
        self.shortcut = make_shortcut(setup, d_in, d_out, place.stride) if place.block == 0 else nn.Identity()

    def forward(self, x: Float[Tensor, "b d i j"]) -> Float[Tensor, "b e s t"]:
        y = self.middle_norm(self.middle(self.reduce(x)))
        if not self.is_plain():
            return torch.relu_(self.drop_path(self.se(self.expand(y))) + self.shortcut(x))
        convolution, norm = self.expand
        y = convolution(y)
        if isinstance(self.shortcut, nn.Identity):
            shortcut, together = x, norm_then_relu(norm, y, x)
        else:
            *before, shortcut_norm = self.shortcut
            shortcut = x
            for layer in before:
                shortcut = layer(shortcut)
            together = norms_then_relu(norm, y, shortcut_norm, shortcut)
            if together is None:
                shortcut = shortcut_norm(shortcut)
                together = norm_then_relu(norm, y, shortcut)
        return torch.relu_(norm(y) + shortcut) if together is None else together

    def is_plain(self) -> bool:
        """Whether the last norms can be fused with the sum and the rectifier.

        That needs nothing in between, no hooks on the modules that would be bypassed, and none of them replaced.
        """
        if type(self.se) is not nn.Identity or type(self.drop_path) is not DropPath:
            return False
        if type(self.expand) is not nn.Sequential or len(self.expand) != 2:
            return False
        if type(self.shortcut) not in (nn.Identity, nn.Sequential) or (self.training and self.drop_path.rate > 0):
            return False
        return not has_hooks(self.expand, self.se, self.drop_path, self.shortcut)
