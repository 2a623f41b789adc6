"""Images as tokens: patches on a grid, and their position embeddings.

linear   X = W patch + w, a convolution whose stride is its kernel size
conv     3x3 convolutions of stride 2, each with norm and rectifier, down to one position for each patch; then 1x1
"""

from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.models.blocks import conv_norm_act
from lambdanets.nn.attention.positions import PositionTable
from lambdanets.nn.saved_geometry import SavedGeometry, SavesGeometry
from lambdanets.ops.attention import sinusoidal_codes

PatchStem = Literal["linear", "conv"]
GridPositions = Literal["learned", "sinusoidal", "none"]


class Patches(nn.Conv2d):
    """A convolution with LeCun-normal weights and zero bias at the start."""

    def __init__(self, d_in: int, d_out: int, side: int) -> None:
        super().__init__(d_in, d_out, side, side)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.weight[0].numel() ** -0.5)
        assert self.bias is not None
        nn.init.zeros_(self.bias)


def make_patches(stem: PatchStem, in_chans: int, d: int, patch: int) -> nn.Module:
    """From images (b, c, i, j) to maps (b, d, i / patch, j / patch)."""
    if stem == "linear":
        return Patches(in_chans, d, patch)
    halvings = patch.bit_length() - 1
    widths = [d >> n for n in reversed(range(halvings))]
    layers = [conv_norm_act(before, after, 3, 2) for before, after in zip([in_chans, *widths], widths, strict=False)]
    return nn.Sequential(*layers, Patches(d, d, 1))


class ClassToken(nn.Module):
    """Prepends a learned token, which collects what the classifier sees."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n+1 d"]:
        return torch.cat([self.weight.expand(x.shape[0], 1, -1), x], 1)


class LearnedPositions(SavesGeometry, PositionTable):
    """Adds a learned embedding for every position of a grid of `size`, and for `ahead` tokens before them."""

    laid_out = ("weight",)
    remedy = "build the network with the saved values, load, and fit it to other images with resize()"

    def __init__(self, d: int, size: tuple[int, int], ahead: int) -> None:
        super().__init__(ahead + size[0] * size[1], d)
        self.size, self.ahead = size, ahead

    def saved_geometry(self) -> SavedGeometry:
        return {"size": self.size, "ahead": self.ahead}

    def forward(self, x: Float[Tensor, "b n d"], grid: tuple[int, int]) -> Float[Tensor, "b n d"]:
        if grid != self.size:
            raise ValueError(
                f"{type(self).__name__}: there are positions for a grid of {self.size} patches, got {grid}; "
                "model.resize(image_size) interpolates them"
            )
        return x + self.weight

    def resize(self, size: tuple[int, int]) -> None:
        """Interpolate the embeddings of the grid into a new parameter; create the optimiser afterwards."""
        if size == self.size:
            return
        old = self.weight.detach()
        grid = old[self.ahead :].unflatten(0, self.size).movedim(-1, 0)[None]
        exact = grid.to(torch.promote_types(grid.dtype, torch.float32))
        new = F.interpolate(exact, size, mode="bicubic", antialias=True)[0].movedim(0, -1).flatten(0, 1)
        weight = torch.cat([old[: self.ahead], new.to(old.dtype)])
        self.weight, self.size = nn.Parameter(weight, requires_grad=self.weight.requires_grad), size

    def extra_repr(self) -> str:
        return f"size={self.size}, ahead={self.ahead}"


class SinusoidalPositions(nn.Module):
    """Adds sinusoidal embeddings to the tokens of any grid: half of the channels encode the row, half the column."""

    def __init__(self, ahead: int) -> None:
        super().__init__()
        self.ahead = ahead

    def forward(self, x: Float[Tensor, "b n d"], grid: tuple[int, int]) -> Float[Tensor, "b n d"]:
        rows, columns = (sinusoidal_codes(n, x.shape[2] // 2, dtype=x.dtype, device=x.device) for n in grid)
        codes = torch.cat([rows[:, None].expand(*grid, -1), columns.expand(*grid, -1)], -1).flatten(0, 1)
        return x + F.pad(codes, (0, 0, self.ahead, 0))

    def extra_repr(self) -> str:
        return f"ahead={self.ahead}"


def make_positions(kind: GridPositions, d: int, size: tuple[int, int], ahead: int) -> nn.Module | None:
    if kind == "learned":
        return LearnedPositions(d, size, ahead)
    return SinusoidalPositions(ahead) if kind == "sinusoidal" else None
