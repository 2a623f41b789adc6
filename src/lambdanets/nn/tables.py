"""Tables of relative position embeddings R, as modules: layers of the same geometry can hold the same one."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.nn.arguments import positive
from lambdanets.nn.saved_geometry import SavedGeometry, SavesGeometry
from lambdanets.ops.geometry import crop_table, resize_table


class RelationTable(SavesGeometry):
    """R for a general relation: one row for each of `relations` kinds of pair."""

    weight: Float[Tensor, "p k u"]
    laid_out = ("weight",)

    def __init__(self, k: int, u: int = 1, *, relations: int, std: float = 1.0) -> None:
        super().__init__()
        self.k, self.u, self.std = k, u, std
        self.weight = nn.Parameter(torch.empty(relations, k, u))
        self.reset_parameters()

    @property
    def geometry(self) -> tuple[object, ...]:
        """What two layers must agree on to share a table."""
        return tuple(self.weight.shape)

    def saved_geometry(self) -> SavedGeometry:
        return {"relations": self.weight.shape[0]}

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.std)

    def extra_repr(self) -> str:
        return f"rows={self.weight.shape[0]}, k={self.k}, u={self.u}"


class RelativeTable(RelationTable):
    """R for the offsets of a grid: `scope` rows per axis in raster order, the middle one for offset zero.

    `scope=None` covers every offset of maps up to `size`. A `size` beside a scope cuts the window to 2 size - 1
    per axis, since no map of that size has other offsets.
    """

    remedy = f"{SavesGeometry.remedy}, and fit it to other maps with resize() afterwards"

    def __init__(
        self,
        k: int,
        u: int = 1,
        *,
        scope: tuple[int, ...] | None,
        size: tuple[int, ...] | None = None,
        std: float = 1.0,
    ) -> None:
        window = covered(scope, size)
        super().__init__(k, u, relations=math.prod(window), std=std)
        self.wanted, self.size, self.scope = scope, size, window

    @property
    def geometry(self) -> tuple[object, ...]:
        return (self.scope, self.k, self.u, self.size if self.is_global else None)

    def saved_geometry(self) -> SavedGeometry:
        """The window, however it was asked for: a global table for maps of n has the rows of a scope of 2 n - 1."""
        return {"scope": self.scope}

    def geometry_text(self, geometry: SavedGeometry) -> str:
        scope = geometry.get("scope")
        if not self.is_global or not isinstance(scope, tuple):
            return super().geometry_text(geometry)
        return f"scope=None, size={tuple((side + 1) // 2 for side in scope)}"

    @property
    def is_global(self) -> bool:
        """Does it promise a row for every offset of its maps?"""
        return self.wanted is None

    def check_covers(
        self, owner: str, context: tuple[int, ...], queries: tuple[int, ...], stride: tuple[int, ...]
    ) -> None:
        """A global table has a row for every offset between such maps."""
        if self.wanted is not None:
            return
        assert self.size is not None
        extent = tuple(max(m, s * (n - 1) + 1) for m, n, s in zip(context, queries, stride, strict=True))
        if any(e > s for e, s in zip(extent, self.size, strict=True)):
            raise ValueError(
                f"{owner}: a map of size {extent} is larger than its global table for {self.size}; "
                f"layer.resize({extent}) or, in a network, model.resize(image_size) interpolates the table; "
                f"a layer with a scope has no such limit"
            )

    def resize(self, size: tuple[int, ...]) -> None:
        """Fit the table to maps of `size`; all layers that hold it follow.

        Along an axis where the table covers whole maps it is interpolated, as the map is scaled. Along one where it
        is a window smaller than the map, offsets stay what they are, and only those that no map of `size` has go.
        The weight becomes a new parameter when its shape changes: make the optimiser afterwards.
        """
        scope = covered(self.wanted, size)
        if scope != self.scope:
            wanted = self.wanted or (math.inf,) * len(scope)
            kept = tuple(min(a, b) if a == w else a for a, b, w in zip(self.scope, scope, wanted, strict=True))
            cropped = crop_table(self.weight.detach(), self.scope, kept)
            resized = resize_table(cropped, kept, scope)
            self.weight = nn.Parameter(resized, requires_grad=self.weight.requires_grad)
        self.size, self.scope = size, scope

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, scope={self.wanted}, size={self.size}"


def make_table(
    owner: str,
    k: int,
    u: int,
    scope: tuple[int, ...] | None,
    size: tuple[int, ...] | None,
    dilation: tuple[int, ...],
    *,
    relations: int | None,
    std: float,
) -> RelationTable:
    """The table of embeddings that a layer's arguments describe."""
    if relations is not None:
        positive(owner, relations=relations)
        if size is not None or max(dilation) > 1:
            raise ValueError(
                f"{owner}: relations are not offsets of a grid and exclude size and dilation, "
                f"got relations={relations}, size={size}, dilation={dilation}"
            )
        return RelationTable(k, u, relations=relations, std=std)
    if scope is None and size is None:
        raise ValueError(f"{owner}: scope=None is global and needs size, the largest map, got size=None")
    if scope is None and max(dilation) > 1:
        raise ValueError(f"{owner}: a global scope has no window to dilate, got scope=None, dilation={dilation}")
    return RelativeTable(k, u, scope=scope, size=size, std=std)


def shared_table(owner: str, shared: object, own: RelationTable) -> RelationTable:
    """The shared table, if it is the like of the one that the layer would have made for itself."""
    if not isinstance(shared, RelationTable):
        raise ValueError(f"{owner}: table must be the `table` of another layer, got a {type(shared).__name__}")
    if type(shared) is not type(own) or shared.geometry != own.geometry:
        raise ValueError(f"{owner}: the shared table is {shared}, but the arguments ask for {own}")
    return shared


def covered(scope: tuple[int, ...] | None, size: tuple[int, ...] | None) -> tuple[int, ...]:
    """The window that a table has: the scope, or every offset of the size, or the smaller of the two."""
    if size is None:
        assert scope is not None
        return scope
    offsets = tuple(2 * s - 1 for s in size)
    return offsets if scope is None else tuple(map(min, scope, offsets))
