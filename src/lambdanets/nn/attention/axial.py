"""Axial attention: along the rows of a map, then along its columns."""

from collections.abc import Sequence
from typing import get_args

from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from lambdanets.nn.arguments import one_of, per_axis
from lambdanets.nn.attention.global_attention import Positions
from lambdanets.nn.attention.heads import Heads
from lambdanets.nn.attention.positions import AxisTables
from lambdanets.nn.context_layer import ContextLayer
from lambdanets.nn.padding import usable_on_map
from lambdanets.ops.attention import attend
from lambdanets.ops.masks import Allowed


class Axial2d(ContextLayer):
    """Attention of every position to its row, then of the outcome to its column, on maps (b, d, height, width).

        Z_ij = sum_l softargmax_l(k^-1/2 q_ij . (k_il + r_(l - j))) v_il
        Y_ij = sum_l softargmax_l(k^-1/2 q'_ij . (k'_lj + r'_(l - i))) v'_lj      with q', k', v' of Z

    Every position reaches every other in two steps, and there are n (height + width) scores instead of n^2. Each step
    has heads of its own.

    Args:
        d_in: channels of the input.
        d_out: channels of the output, h times the value depth v; `d_in` by default.
        h: heads.
        k: depth of queries and keys of a head; v by default.
        positions: "relative", with a table for each step, or "none".
        size: the largest map; relative positions need it.
        bias: an offset in every projection.
        project_out: a last projection W_O in each step.

    >>> Axial2d(32, size=14)(torch.randn(2, 32, 14, 9)).shape
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
        k: int | None = None,
        positions: Positions = "relative",
        size: int | Sequence[int] | None = None,
        bias: bool = False,
        project_out: bool = False,
    ) -> None:
        super().__init__(d_in, d_out)
        owner = type(self).__name__
        one_of(owner, positions=(positions, get_args(Positions)))
        extents: tuple[int | None, ...] = (None, None)
        if positions == "relative":
            if size is None:
                raise ValueError(f"{owner}: relative positions need size, the largest map, got size=None")
            extents = per_axis(owner, 2, size=size)

        def step(axis: int, d_from: int) -> Along:
            heads = Heads(owner, d_from, self.d_out, d_from, h=h, k=k, bias=bias, project_out=project_out)
            return Along(axis, heads, extents[axis])

        self.rows, self.columns = step(1, d_in), step(0, self.d_out)

    def resize(self, size: int | Sequence[int]) -> None:
        """Fit the relative positions, if any, to maps of `size`."""
        height, width = per_axis(type(self).__name__, 2, size=size)
        self.rows.resize(width)
        self.columns.resize(height)

    def mix(
        self, x: Float[Tensor, "b i j d"], context: Float[Tensor, "b i j d"], allowed: Allowed
    ) -> Float[Tensor, "b i j o"]:
        owner, grid = type(self).__name__, x.shape[1:-1]
        usable = usable_on_map(owner, allowed, x.shape[0], grid)
        for step in (self.rows, self.columns):
            if step.offsets is not None and grid[step.axis] > step.offsets.size[0]:
                largest = (*self.columns.offsets.size, *self.rows.offsets.size)  # type: ignore[union-attr]
                raise ValueError(
                    f"{owner}: a map of size {tuple(grid)} is larger than its positions for {largest}; "
                    f"layer.resize(size) interpolates them"
                )
        z = self.rows(x, context, usable)
        y: Tensor = self.columns(z, z, usable)
        return y

    def extra_repr(self) -> str:
        return f"{self.d_in}, {self.d_out}"


class Along(nn.Module):
    """Attention along one axis of a map, every line of it by itself.

    Args:
        axis: 0 for columns, 1 for rows.
        size: the longest line, for relative positions; None for none.
    """

    def __init__(self, axis: int, heads: Heads, size: int | None) -> None:
        super().__init__()
        self.axis, self.heads = axis, heads
        self.offsets = None if size is None else AxisTables(heads.k, (size,))

    def resize(self, size: int) -> None:
        if self.offsets is not None:
            self.offsets.resize((size,))

    def forward(
        self, x: Float[Tensor, "b i j d"], context: Float[Tensor, "b i j d"], usable: Bool[Tensor, "b i j"] | None
    ) -> Float[Tensor, "b i j o"]:
        grid, n, beta = x.shape[1:-1], x.shape[1 + self.axis], self.heads.k**-0.5
        asking = x.flatten(1, 2)
        q, keys, values = (
            lines(part.unflatten(1, grid), self.axis)
            for part in self.heads(asking, asking if x is context else context.flatten(1, 2))
        )
        bias = None if self.offsets is None else self.offsets.scores(q * beta, (n,), (n,))
        mask = None if usable is None else lines(usable, self.axis)[:, None]
        y = attend(q, keys, values, bias=bias, mask=mask, beta=beta)
        y = y.unflatten(0, (x.shape[0], grid[1 - self.axis])).movedim(2, 1 + self.axis)
        joined: Tensor = self.heads.join(y.flatten(1, 2)).unflatten(1, grid)
        return joined

    def extra_repr(self) -> str:
        return f"axis={self.axis}"


def lines(x: Shaped[Tensor, "b i j *c"], axis: int) -> Shaped[Tensor, "l n *c"]:
    """The lines of maps along an axis, as a batch of their own."""
    return x.movedim(1 + axis, 2).flatten(0, 1)
