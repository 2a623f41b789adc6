"""Masks say which context positions a query may use: boolean, True = may use, broadcastable to (b, n, m).

Two kinds cost very different amounts. A mask that is the same for every query (padding) only removes rows of the
context; one that differs between queries needs every pair. `Allowed` keeps them apart.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Allowed:
    """What a mask permits: `rows` that all queries may use, or `pairs` if they differ; at most one of them is set."""

    rows: Bool[Tensor, "#b m"] | None = None
    pairs: Bool[Tensor, "#b n m"] | None = None

    @property
    def mask(self) -> Bool[Tensor, "#b #n m"] | None:
        """Either of them as one mask."""
        return self.pairs if self.rows is None else self.rows[:, None]

    def usable(self) -> Bool[Tensor, "#b m"] | None:
        """The context rows that some query may use, None for all of them."""
        return self.rows if self.pairs is None else self.pairs.any(-2)

    def both(self, pairs: Bool[Tensor, "n m"]) -> "Allowed":
        """This and `pairs` at once."""
        if self.pairs is not None:
            return Allowed(pairs=self.pairs & pairs)
        if self.rows is not None:
            return Allowed(pairs=self.rows[:, None, :] & pairs)
        return Allowed(pairs=pairs[None])


def read_mask(mask: Bool[Tensor, "..."] | None, b: int, n: int, m: int) -> Allowed:
    """Check a caller's mask against the sizes it must broadcast to, and sort it by kind."""
    if mask is None:
        return Allowed()
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(f"mask must be a boolean tensor (True = may use), got {got}")
    wanted = (b, n, m)[3 - mask.ndim :] if mask.ndim <= 3 else ()
    if mask.ndim > 3 or any(got not in (1, want) for got, want in zip(mask.shape, wanted, strict=True)):
        raise ValueError(f"mask must broadcast to (b, n, m) = {(b, n, m)}, got shape {tuple(mask.shape)}")
    mask = mask.reshape((1,) * (3 - mask.ndim) + mask.shape)
    if mask.shape[1] == 1:
        return Allowed(rows=mask[:, 0].expand(-1, m))
    return Allowed(pairs=mask.expand(-1, -1, m))


def drop_unusable(x: Float[Tensor, "b m *c"], usable: Bool[Tensor, "#b m"] | None) -> Float[Tensor, "b m *c"]:
    """Zeros in the rows that no query may use, so that what stands there, NaN included, reaches nothing."""
    if usable is None:
        return x
    return x.masked_fill(~usable.reshape(*usable.shape, *(1,) * (x.ndim - 2)), 0.0)


def drop_nonfinite(x: Float[Tensor, "b n d"], usable: Bool[Tensor, "#b n"]) -> Float[Tensor, "b n d"]:
    """Queries at positions that no query may use as context, with zeros for NaN and Inf.

    They are still answered, but what stands there must not reach the weights' gradients.
    """
    return x.masked_fill(~usable[..., None] & ~x.isfinite(), 0.0)
