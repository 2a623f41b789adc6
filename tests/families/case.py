"""A layer of the family with arguments, inputs that fit it and the oracle that it must equal."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from lambdanets.nn.layout import OnTokens

# (x, context, weights by name, mask of all pairs or None, case) -> y, all with channels behind, on flat positions.
Oracle = Callable[[Tensor, Tensor, Mapping[str, Tensor], Tensor | None, "Case"], Tensor]
WIDTH, OUT, OTHER = 6, 10, 7


@dataclass(frozen=True)
class Case:
    """`mask` is "rows" (padding, the last row of which is not finite), "pairs" (one query sees nothing) or None."""

    name: str
    layer: type[nn.Module]
    oracle: Oracle
    arguments: dict = field(default_factory=dict)
    grid: tuple[int, ...] = (5, 3)
    context_grid: tuple[int, ...] | None = None  # another context, of OTHER channels
    mask: str | None = None
    width: int = WIDTH
    out: int = OUT

    def __str__(self) -> str:
        return f"{self.layer.__name__}-{self.name}"

    @property
    def is_on_tokens(self) -> bool:
        return issubclass(self.layer, OnTokens)

    def build(self, dtype: torch.dtype = torch.float32) -> nn.Module:
        torch.manual_seed(0)
        d_context = {} if self.context_grid is None else {"d_context": OTHER}
        return self.layer(self.width, self.out, **d_context, **self.arguments).to(dtype)

    def inputs(self, b: int = 2, dtype: torch.dtype = torch.float32) -> tuple[Tensor, dict[str, Tensor]]:
        """x and the keyword arguments of forward."""
        generator = torch.Generator().manual_seed(1)

        def draw(d: int, grid: tuple[int, ...]) -> Tensor:
            shape = (b, *grid, d) if self.is_on_tokens else (b, d, *grid)
            return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

        x, options = draw(self.width, self.grid), {}
        if self.context_grid is not None:
            options["context"] = draw(OTHER, self.context_grid)
        n, m = math.prod(self.grid), math.prod(self.context_grid or self.grid)
        if self.mask is not None:
            allowed = torch.rand((b, 1 if self.mask == "rows" else n, m), generator=generator) < 0.8
            allowed[:, :, 0] = True
            if self.mask == "pairs":
                allowed[:, 1] = False
            else:
                allowed[:, :, -1] = False
                self.flat(options.get("context", x))[:, -1] = torch.nan
            options["mask"] = allowed
        return x, options

    @property
    def path(self) -> tuple[object, ...]:
        """Equal for cases that differ in numbers, masks, offsets and projections only: one graph stands for them."""
        ways = (self.arguments.get(name) for name in ("kind", "positions", "causal"))
        return self.layer, "g" in self.arguments, *ways

    def flat(self, x: Tensor) -> Tensor:
        """(b, positions, d)"""
        return x if self.is_on_tokens else x.flatten(2).transpose(1, 2)

    def expected(
        self, leaves: Mapping[str, Tensor], context: Tensor | None, mask: Tensor | None, weights: Mapping[str, Tensor]
    ) -> Tensor:
        """The oracle's answer in the layout of the layer; what is not finite counts as zero in its own query."""
        x = self.flat(leaves["x"]).nan_to_num()
        source = x if context is None else self.flat(context).nan_to_num()
        allowed = None if mask is None else mask.expand(len(x), x.shape[1], source.shape[1])
        y = self.oracle(x, source, weights, allowed, self)
        return y if self.is_on_tokens else y.transpose(1, 2).reshape(len(x), -1, *self.grid)
