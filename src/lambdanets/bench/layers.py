"""A lambda layer where a 3x3 convolution or attention could stand, at the four resolutions of a ResNet-50."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lambdanets.nn import LambdaLayer2d
from lambdanets.ops import reference

RESOLUTIONS = ((56, 64), (28, 128), (14, 256), (7, 512))
BATCH = 8


class Attention(nn.Module):
    """torch's own multi-head attention over the positions of a map."""

    def __init__(self, d: int, heads: int = 4) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(d, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(2).transpose(1, 2)
        y: Tensor = self.attention(tokens, tokens, tokens, need_weights=False)[0]
        return y.transpose(1, 2).reshape(x.shape)


@dataclass(frozen=True)
class Shape:
    """Maps of side x side positions and d channels."""

    side: int
    d: int

    def contestants(self) -> dict[str, nn.Module]:
        torch.manual_seed(0)
        return {
            "lambda": LambdaLayer2d(self.d),
            "conv3x3": nn.Conv2d(self.d, self.d, 3, padding=1, bias=False),
            "attention": Attention(self.d),
        }

    def input(self) -> Tensor:
        return torch.randn(BATCH, self.d, self.side, self.side)


def check(shape: Shape, looks: int = 7) -> float:
    """The layer's distance from the oracle at a few positions of the map that is timed.

    The time of a wrong layer says nothing. The oracle takes the looked-at positions as queries of their own, with the
    whole map as context and every offset spelt out as a relation.
    """
    side, scope = shape.side, 23
    layer = LambdaLayer2d(shape.d, scope=scope).eval()
    x = torch.randn(1, shape.d, side, side)
    tokens = x.double().flatten(2).transpose(1, 2)
    at = torch.linspace(0, side * side - 1, looks).long()
    place = torch.arange(side * side)
    down, right = ((place // s) % side - ((at // s) % side)[:, None] + scope // 2 for s in (side, 1))
    inside = (down >= 0) & (down < scope) & (right >= 0) & (right < scope)
    with torch.no_grad():
        ours = layer(x).flatten(2).transpose(1, 2)[:, at]
        exact = reference.lambda_layer(
            tokens[:, at],
            tokens,
            {name: w.double() for name, w in layer.state_dict().items()},
            size=(looks,),
            context_size=(side * side,),
            k=layer.k,
            h=layer.h,
            u=layer.u,
            scope=None,
            stride=(1,),
            dilation=(1,),
            terms="both",
            key_norm="softmax",
            norm="batch",
            causal=False,
            relation=torch.where(inside, down * scope + right, -1),
            training=False,
        )
    error = float((ours - exact).abs().max() / exact.abs().max().clamp(min=1))
    if not error <= 1e-5:
        raise RuntimeError(f"the lambda layer is off by {error:.1e} at {shape}: not timed")
    return error


def forward(module: nn.Module, x: Tensor) -> Callable[[], object]:
    module.eval()

    def run() -> object:
        with torch.no_grad():
            return module(x)

    return run


def training_step(module: nn.Module, x: Tensor) -> Callable[[], object]:
    module.train()
    x = x.clone().requires_grad_()

    def run() -> object:
        y = module(x)
        return torch.autograd.grad(y, [x, *module.parameters()], torch.ones_like(y))

    return run
