"""A convolution whose channels are joined by those of global attention (attention-augmented convolution)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.nn.arguments import per_axis, positive
from lambdanets.nn.attention.global_attention import Attention2d
from lambdanets.nn.context_layer import ContextLayer
from lambdanets.nn.padding import usable_on_map
from lambdanets.ops.masks import Allowed

# Bello et al. give no head keys that are shallower.
SHALLOWEST = 20


class Augmented2d(ContextLayer):
    """Y = [convolution(x), attention(x) W_O] on maps (b, d, height, width), standing where a 3x3 Conv2d stands.

    The attention is global, of h heads and with relative positions. Its depths are shares of d_out, rounded to heads,
    and the convolution has the channels that it leaves. What a mask leaves out is zero for the convolution.

    Args:
        d_in: channels of the input.
        d_out: channels of the output; `d_in` by default.
        h: heads.
        kappa: depth of the keys of all heads, as a share of d_out; a head has at least 20.
        upsilon: depth of the values of all heads, as a share of d_out.
        size: the largest map.

    >>> Augmented2d(32, size=14)(torch.randn(2, 32, 14, 9)).shape
    torch.Size([2, 32, 14, 9])
    """

    dims = 2
    reads_context = False

    def __init__(
        self,
        d_in: int,
        d_out: int | None = None,
        *,
        h: int = 4,
        kappa: float = 0.2,
        upsilon: float = 0.1,
        size: int | Sequence[int],
    ) -> None:
        super().__init__(d_in, d_out)
        owner = type(self).__name__
        positive(owner, h=h)
        for name, share in (("kappa", kappa), ("upsilon", upsilon)):
            if not 0 < share < 1:
                raise ValueError(f"{owner}: {name} must be above 0 and below 1, got {name}={share}")
        extents = per_axis(owner, 2, size=size)
        k, v = (round(share * self.d_out / h) for share in (kappa, upsilon))
        d_attention = h * max(v, 1)
        if d_attention >= self.d_out:
            raise ValueError(
                f"{owner}: attention leaves no channels to the convolution, "
                f"got d_out={self.d_out}, h={h}, upsilon={upsilon}"
            )
        self.convolution = nn.Conv2d(d_in, self.d_out - d_attention, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(self.convolution.weight, mode="fan_out", nonlinearity="relu")
        self.attention = Attention2d(
            d_in, d_attention, h=h, k=max(k, SHALLOWEST), positions="relative", size=extents, project_out=True
        )

    def resize(self, size: int | Sequence[int]) -> None:
        """Fit the relative positions to maps of `size`."""
        self.attention.resize(per_axis(type(self).__name__, 2, size=size))

    def mix(
        self, x: Float[Tensor, "b i j d"], context: Float[Tensor, "b i j d"], allowed: Allowed
    ) -> Float[Tensor, "b i j o"]:
        owner, grid = type(self).__name__, x.shape[1:-1]
        usable_on_map(owner, allowed, x.shape[0], grid)  # a convolution cannot mask pairs
        assert self.attention.offsets is not None
        self.attention.offsets.check(owner, grid)
        convolved = self.convolution(context.movedim(-1, 1)).movedim(1, -1)
        return torch.cat([convolved, self.attention.mix(x, context, allowed)], -1)

    def extra_repr(self) -> str:
        return f"{self.d_in}, {self.d_out}"
