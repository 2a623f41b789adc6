"""Masks of layers that leave out positions of the context for all queries, not pairs."""

from collections.abc import Sequence

from jaxtyping import Bool
from torch import Tensor

from lambdanets.ops.masks import Allowed


def usable_rows(owner: str, allowed: Allowed) -> Bool[Tensor, "#b m"] | None:
    """The rows that all queries may use, None for all of them; a mask that differs between queries is refused."""
    if allowed.pairs is not None:
        raise ValueError(
            f"{owner}: a mask must be the same for all queries, as padding is, (b, 1, m), "
            f"got shape {tuple(allowed.pairs.shape)}"
        )
    return allowed.rows


def usable_on_map(owner: str, allowed: Allowed, b: int, grid: Sequence[int]) -> Bool[Tensor, "b *grid"] | None:
    """The same for each position of a map."""
    rows = usable_rows(owner, allowed)
    return None if rows is None else rows.expand(b, -1).reshape(b, *grid)
