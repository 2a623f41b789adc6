"""Multi-head projections: queries, keys and values of several heads, and the output projection."""

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.nn.arguments import positive
from lambdanets.nn.hooks import has_hooks
from lambdanets.nn.projections import Dense
from lambdanets.nn.saved_geometry import SavedGeometry, SavesGeometry


class Projected(NamedTuple):
    q: Float[Tensor, "b n h k"]
    keys: Float[Tensor, "b m g k"]
    values: Float[Tensor, "b m g v"]


class Heads(SavesGeometry):
    """W_Q, W_K, W_V of h heads and, with `project_out`, W_O.

    Args:
        h: heads of queries.
        k: depth of queries and keys of a head; d_out / h by default, the depth of values.
        g: heads of keys and values, each of which serves h / g of those of queries; h by default.
        bias: an offset in every projection.
    """

    laid_out = ("query.weight", "key.weight", "value.weight")

    def __init__(
        self,
        owner: str,
        d_in: int,
        d_out: int,
        d_context: int,
        *,
        h: int,
        k: int | None = None,
        g: int | None = None,
        bias: bool = False,
        project_out: bool = False,
    ) -> None:
        super().__init__()
        g = h if g is None else g
        positive(owner, h=h, g=g)
        if d_out % h:
            raise ValueError(f"{owner}: d_out must be divisible by h, got d_out={d_out}, h={h}")
        if h % g:
            raise ValueError(f"{owner}: heads of queries must be a multiple of those of keys, got h={h}, g={g}")
        self.h, self.g, self.v, self.k = h, g, d_out // h, d_out // h if k is None else k
        positive(owner, k=self.k)
        self.query = Dense(d_in, h * self.k, bias)
        self.key = Dense(d_context, g * self.k, bias)
        self.value = Dense(d_context, g * self.v, bias)
        self.out = Dense(d_out, d_out, bias) if project_out else nn.Identity()

    def saved_geometry(self) -> SavedGeometry:
        return {"h": self.h, "k": self.k, "g": self.g}

    def forward(self, x: Float[Tensor, "b n d"], context: Float[Tensor, "b m e"]) -> Projected:
        parts = (self.query, self.key, self.value)
        if x is context and {*map(type, parts)} == {Dense} and not has_hooks(*parts):
            # One product instead of three, where no projection was replaced or has hooks.
            bias = None if self.query.bias is None else torch.cat([part.bias for part in parts])
            together = F.linear(x, torch.cat([part.weight for part in parts]), bias)
            q, keys, values = together.split([part.out_features for part in parts], -1)
        else:
            q, keys, values = self.query(x), self.key(context), self.value(context)
        return Projected(
            q.unflatten(-1, (self.h, self.k)),
            keys.unflatten(-1, (self.g, self.k)),
            values.unflatten(-1, (self.g, self.v)),
        )

    def join(self, y: Float[Tensor, "b n h v"]) -> Float[Tensor, "b n o"]:
        joined: Tensor = self.out(y.flatten(2))
        return joined

    def extra_repr(self) -> str:
        return f"h={self.h}, k={self.k}, v={self.v}, g={self.g}"
