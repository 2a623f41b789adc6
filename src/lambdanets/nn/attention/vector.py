"""Vector self-attention: windows weighed by a small network, differently for different channels (SAN)."""

from collections.abc import Sequence
from typing import Literal, get_args

import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.nn.arguments import one_of, positive
from lambdanets.nn.attention.local import odd_window
from lambdanets.nn.context_layer import ContextLayer
from lambdanets.nn.padding import usable_on_map
from lambdanets.nn.projections import Dense
from lambdanets.nn.saved_geometry import SavedGeometry, SavesGeometry
from lambdanets.ops.attention.neighbours import in_front, offsets, present, sum_around, window_softmax
from lambdanets.ops.attention.vector import pairwise_scores, patchwise_weights
from lambdanets.ops.masks import Allowed

Kind = Literal["pairwise", "patchwise"]


class Vector2d(SavesGeometry, ContextLayer):
    """Y[g, c, n] = sum_o A[g, o, n] v[g, c, n + o] on maps (b, d, height, width); `share` channels c make a group g.

        pairwise    A[:, o, n] = softargmax_o(W relu(V [q_n - k_(n + o), p_n - p_(n + o)] + c) + d)
        patchwise   A[:, :, n] = W relu(V [q_n, k_(n + o) for every o] + c) + d

    The places p are a linear map of coordinates that go from -1 to 1 on every map. The patchwise kind has no softmax,
    and no places, since its network knows which offset is which. Positions outside of the map do not exist for the
    pairwise kind and are zeros for the patchwise kind; those that a mask leaves out are like them.

    Args:
        d_in: channels of the input.
        d_out: channels of the output; `d_in` by default.
        kind: "pairwise" or "patchwise".
        k: depth of queries and keys; a quarter of `d_out` by default. The hidden layer has k units if pairwise, one for
            each group if patchwise.
        scope: the side of the window, odd, for both axes or for each of them.
        share: channels of a group.

    >>> Vector2d(32, kind="pairwise", scope=5)(torch.randn(2, 32, 14, 9)).shape
    torch.Size([2, 32, 14, 9])
    """

    dims = 2
    reads_context = False
    laid_out = ("relate.weight", "weigh.weight")

    def __init__(
        self,
        d_in: int,
        d_out: int | None = None,
        *,
        kind: Kind = "patchwise",
        k: int | None = None,
        scope: int | Sequence[int] = 7,
        share: int = 8,
    ) -> None:
        super().__init__(d_in, d_out)
        owner = type(self).__name__
        one_of(owner, kind=(kind, get_args(Kind)))
        self.k = max(self.d_out // 4, 1) if k is None else k
        positive(owner, k=self.k, share=share)
        if self.d_out % share:
            raise ValueError(f"{owner}: d_out must be divisible by share, got d_out={self.d_out}, share={share}")
        sides = odd_window(owner, 2, scope)
        self.kind, self.scope, self.share = kind, (sides[0], sides[1]), share
        g, positions = self.d_out // share, sides[0] * sides[1]
        self.query, self.key = Dense(d_in, self.k, False), Dense(d_in, self.k, False)
        self.value = Dense(d_in, self.d_out, False)
        if kind == "pairwise":
            self.place = Dense(2, 2, False)
            self.relate, self.weigh = Dense(self.k + 2, self.k), Dense(self.k, g)
        else:
            self.relate, self.weigh = Dense((1 + positions) * self.k, g), Dense(g, g * positions)
            # Weights that do not sum to one are small at first: sums of so many values vary as one of them does.
            nn.init.normal_(self.weigh.weight, std=(g * positions) ** -0.5)

    def saved_geometry(self) -> SavedGeometry:
        """The weights of the pairwise kind are the same for every window."""
        return {"scope": self.scope} if self.kind == "patchwise" else {}

    def mix(
        self, x: Float[Tensor, "b i j d"], context: Float[Tensor, "b i j d"], allowed: Allowed
    ) -> Float[Tensor, "b i j o"]:
        grid = (x.shape[1], x.shape[2])
        usable = usable_on_map(type(self).__name__, allowed, x.shape[0], grid)
        q, keys = self.query(x), self.key(context)
        if self.kind == "pairwise":
            there = present(grid, self.scope, usable, x.device)
            weights = window_softmax(self._scores_of_pairs(q, keys), there)
        else:
            weights = self._weights_of_patches(q, keys)
        values = in_front(self.value(context)).unflatten(1, (self.d_out // self.share, self.share))
        return sum_around(weights, values).flatten(1, 2).movedim(1, -1)

    def _scores_of_pairs(
        self, q: Float[Tensor, "b i j k"], keys: Float[Tensor, "b i j k"]
    ) -> Float[Tensor, "b g r s i j"]:
        of_features, of_places = self.relate.weight.split([self.k, 2], 1)
        spacing = (2 / max(q.shape[1] - 1, 1), 2 / max(q.shape[2] - 1, 1))
        to_here = self.place(-offsets(self.scope, spacing, like=q))
        return pairwise_scores(
            in_front(F.linear(q, of_features, self.relate.bias)),
            in_front(F.linear(keys, of_features)),
            F.linear(to_here, of_places).movedim(-1, 0),
            self.weigh.weight,
            self.weigh.bias,
        )

    def _weights_of_patches(
        self, q: Float[Tensor, "b i j k"], keys: Float[Tensor, "b i j k"]
    ) -> Float[Tensor, "b g r s i j"]:
        of_q, of_keys = self.relate.weight.unflatten(1, (-1, self.k)).tensor_split([1], 1)
        maps = (self.d_out // self.share, *self.scope)
        return patchwise_weights(
            in_front(q),
            in_front(keys),
            of_q[:, 0],
            of_keys.unflatten(1, self.scope).movedim(-1, 1),
            self.relate.bias,
            self.weigh.weight.unflatten(0, maps),
            self.weigh.bias.unflatten(0, maps),
        )

    def extra_repr(self) -> str:
        return f"{self.d_in}, {self.d_out}, kind={self.kind!r}, k={self.k}, scope={self.scope}, share={self.share}"
