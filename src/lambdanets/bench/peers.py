"""The compared layers: ours, the lambda layers of others, a convolution and attention."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lambdanets.bench.formats import MEMORY_FORMATS, Format, convert
from lambdanets.nn import LambdaLayer2d
from lambdanets.optional import import_torchvision, install_hint


@dataclass(frozen=True)
class Shape:
    """b maps of side x side positions and d channels, and the lambda layer on them."""

    side: int
    d: int
    b: int = 8
    k: int = 16
    h: int = 4
    u: int = 1
    scope: int = 23
    format: Format = "contiguous"

    def input(self) -> Tensor:
        x = torch.randn(self.b, self.d, self.side, self.side)
        return x.contiguous(memory_format=MEMORY_FORMATS[self.format])


class Attention(nn.Module):
    """torch's own multi-head attention over the positions of a map."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(d, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(2).transpose(1, 2)
        # Its "fast path" for inference forms the whole attention map and takes up to five times as long as SDPA.
        was_enabled = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            y: Tensor = self.attention(tokens, tokens, tokens, need_weights=False)[0]
        finally:
            torch.backends.mha.set_fastpath_enabled(was_enabled)
        return y.transpose(1, 2).reshape(x.shape)


def lambdanets_layer(s: Shape) -> nn.Module:
    return LambdaLayer2d(s.d, k=s.k, h=s.h, u=s.u, scope=s.scope)


def lucidrains_layer(s: Shape) -> nn.Module:
    from lambda_networks import LambdaLayer

    layer: nn.Module = LambdaLayer(dim=s.d, dim_out=s.d, r=s.scope, dim_k=s.k, heads=s.h, dim_u=s.u)
    return layer


def timm_layer(s: Shape) -> nn.Module:
    import_torchvision()  # before timm imports it
    from timm.layers.lambda_layer import LambdaLayer

    layer: nn.Module = LambdaLayer(s.d, s.d, stride=1, num_heads=s.h, dim_head=s.k, r=s.scope)
    return layer


def convolution(s: Shape) -> nn.Module:
    return nn.Conv2d(s.d, s.d, 3, padding=1, bias=False)


def attention(s: Shape) -> nn.Module:
    return Attention(s.d, s.h)


@dataclass(frozen=True)
class Contestant:
    """A layer to time; `package` and its `module` must be installed."""

    build: Callable[[Shape], nn.Module]
    package: str | None = None
    module: str | None = None
    has_intra_depth: bool = False
    is_lambda: bool = False

    def is_installed(self) -> bool:
        return self.module is None or importlib.util.find_spec(self.module) is not None


OURS = "lambdanets"
CONVOLUTION = "conv3x3"
CONTESTANTS: dict[str, Contestant] = {
    OURS: Contestant(lambdanets_layer, has_intra_depth=True),
    "lucidrains": Contestant(
        lucidrains_layer, "lambda-networks", "lambda_networks", has_intra_depth=True, is_lambda=True
    ),
    "timm": Contestant(timm_layer, "timm", "timm", is_lambda=True),
    CONVOLUTION: Contestant(convolution),
    "attention": Contestant(attention),
}


def absent() -> dict[str, str]:
    """Peers that are not installed, and how to install them."""
    return {
        name: f"{who.package} is not installed: {install_hint('bench')}"
        for name, who in CONTESTANTS.items()
        if not who.is_installed()
    }


def field(shape: Shape) -> list[str]:
    """The layers to time at a shape; with u > 1, only those with an intra-depth."""
    return [name for name, who in CONTESTANTS.items() if who.is_installed() and (shape.u == 1 or who.has_intra_depth)]


def build(name: str, shape: Shape) -> nn.Module:
    """Build a layer with its weights in the memory format of the shape."""
    torch.manual_seed(0)
    return convert(CONTESTANTS[name].build(shape), shape.format)
