"""Local relation layers: windows weighed by what positions look like and by where they stand."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.nn.arguments import positive
from lambdanets.nn.attention.local import odd_window
from lambdanets.nn.context_layer import ContextLayer
from lambdanets.nn.padding import usable_on_map
from lambdanets.nn.projections import Dense
from lambdanets.nn.saved_geometry import SavedGeometry, SavesGeometry
from lambdanets.ops.attention.neighbours import in_front, offsets, present, sum_around
from lambdanets.ops.attention.relation import composability
from lambdanets.ops.masks import Allowed


class Relation2d(SavesGeometry, ContextLayer):
    """Y[g, c, n] = sum_o softargmax_o(q[g, n] . k[g, n + o] + G[g, o]) x[g, c, n + o] on maps (b, d, height, width).

    A group g of `share` channels has one map. The values are the channels of the input themselves, so as many go out as
    came in. The geometry prior G is a network with one hidden layer on the offset o, scaled to [-1, 1]. Positions
    outside of the map do not exist.

    Args:
        d_in: channels of the input.
        d_out: `d_in`.
        k: depth of queries and keys of a group; published are scalars.
        scope: the side of the window, odd, for both axes or for each of them.
        share: channels of a group.

    >>> Relation2d(32, scope=5)(torch.randn(2, 32, 14, 9)).shape
    torch.Size([2, 32, 14, 9])
    """

    dims = 2
    reads_context = False
    laid_out = ("prior.0.weight",)

    def __init__(
        self,
        d_in: int,
        d_out: int | None = None,
        *,
        k: int = 1,
        scope: int | Sequence[int] = 7,
        share: int = 8,
    ) -> None:
        super().__init__(d_in, d_out)
        owner = type(self).__name__
        positive(owner, k=k, share=share)
        if self.d_out != d_in:
            raise ValueError(f"{owner}: values are not projected, so d_out is d_in, got d_in={d_in}, d_out={d_out}")
        if d_in % share:
            raise ValueError(f"{owner}: d_in must be divisible by share, got d_in={d_in}, share={share}")
        sides = odd_window(owner, 2, scope)
        self.scope, self.share, self.k = (sides[0], sides[1]), share, k
        g = d_in // share
        self.query, self.key = Dense(d_in, k * g, False), Dense(d_in, k * g, False)
        self.prior = nn.Sequential(Dense(2, g), nn.ReLU(), Dense(g, g))

    def saved_geometry(self) -> SavedGeometry:
        """The prior reads offsets that are scaled by the scope."""
        return {"scope": self.scope}

    def mix(
        self, x: Float[Tensor, "b i j d"], context: Float[Tensor, "b i j d"], allowed: Allowed
    ) -> Float[Tensor, "b i j d"]:
        grid, groups = (x.shape[1], x.shape[2]), (self.d_in // self.share, self.share)
        usable = usable_on_map(type(self).__name__, allowed, x.shape[0], grid)
        q, keys = (in_front(part).unflatten(1, (self.k, groups[0])) for part in (self.query(x), self.key(context)))
        spacing = (1 / max(self.scope[0] // 2, 1), 1 / max(self.scope[1] // 2, 1))
        prior = self.prior(offsets(self.scope, spacing, like=x)).movedim(-1, 0)
        weights = composability(q, keys, prior, present(grid, self.scope, usable, x.device))
        y = sum_around(weights, in_front(context).unflatten(1, groups))
        return y.flatten(1, 2).movedim(1, -1)

    def extra_repr(self) -> str:
        return f"{self.d_in}, k={self.k}, scope={self.scope}, share={self.share}"
