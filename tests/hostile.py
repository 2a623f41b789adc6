"""Inputs on which careless arithmetic shows: outliers, offsets, many scales, sparse and structured maps.

And errors measured where they happen. An output may be small beside the largest one and still has to be right: what it
may be off by is a share of the products that it is a sum of, |q[n]| |R| |V in n's window|, not of the largest output.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from lambdanets.ops import Grid

# Of the automatic choice and of every plan but native_fft: relative to the products of one output. Docs: numerics.md.
BOUND = {torch.float32: 1e-6, torch.float64: 2e-15}


def _block(x: Tensor, grid: tuple[int, ...], g: torch.Generator) -> Tensor:
    """Which positions are in a random box."""
    inside = torch.ones(grid, dtype=torch.bool)
    for axis, n in enumerate(grid):
        first, last = sorted(torch.randint(0, n + 1, (2,), generator=g).tolist())
        place = torch.arange(n)
        shape = [1] * len(grid)
        shape[axis] = n
        inside = inside & ((place >= first) & (place <= last)).reshape(shape)
    return inside.reshape(1, -1, *[1] * (x.ndim - 2))


def _some(x: Tensor, share: float, g: torch.Generator) -> Tensor:
    return (torch.rand(x.shape[:2], generator=g) < share).reshape(*x.shape[:2], *[1] * (x.ndim - 2))


def _ramp(x: Tensor, grid: tuple[int, ...], decades: float) -> Tensor:
    """Magnitudes that grow along the first axis."""
    line = torch.logspace(-decades / 2, decades / 2, grid[0], dtype=torch.float64)
    return line.reshape(-1, *[1] * (len(grid) - 1)).expand(grid).reshape(1, -1, *[1] * (x.ndim - 2)).to(x.dtype)


def _corner(x: Tensor, large: float, small: float) -> Tensor:
    return torch.cat([large * x[:, :1], small * x[:, 1:]], 1)


def _even(x: Tensor, grid: tuple[int, ...]) -> Tensor:
    """Plus and minus one in turns, as in a chess board."""
    place = sum(torch.meshgrid(*map(torch.arange, grid), indexing="ij"))
    return (1 - 2 * (place % 2)).reshape(1, -1, *[1] * (x.ndim - 2)).to(x.dtype)


# From unit normals (b, positions, ...) on a grid.
MAPS: dict[str, Callable[[Tensor, tuple[int, ...], torch.Generator], Tensor]] = {
    "normal": lambda x, grid, g: x,
    "1e6 in 1e-3": lambda x, grid, g: _corner(x, 1e6, 1e-3),
    "1e6 in 1e-6": lambda x, grid, g: _corner(x, 1e6, 1e-6),
    "30 in 1e-3": lambda x, grid, g: _corner(x, 30.0, 1e-3),
    "100 in 1": lambda x, grid, g: _corner(x, 100.0, 1.0),
    "1000 in 1": lambda x, grid, g: _corner(x, 1e3, 1.0),
    "outliers": lambda x, grid, g: torch.where(_some(x, 0.01, g), 1e5 * x, x),
    "heavy tails": lambda x, grid, g: (
        x * torch.exp(4 * torch.randn(x.shape[:2], generator=g)).reshape(*x.shape[:2], *[1] * (x.ndim - 2)).to(x.dtype)
    ),
    "offset": lambda x, grid, g: x + 1e3,
    "scale 1e-6": lambda x, grid, g: 1e-6 * x,
    "scale 1e6": lambda x, grid, g: 1e6 * x,
    "scale 1e-30": lambda x, grid, g: 1e-30 * x,
    "scale 1e30": lambda x, grid, g: 1e30 * x,
    "ramp": lambda x, grid, g: x * _ramp(x, grid, 12),
    "constant": lambda x, grid, g: torch.ones_like(x),
    "150 in a constant": lambda x, grid, g: _corner(torch.full_like(x, 1.2345678), 150.0, 1.0),
    "chess board": lambda x, grid, g: _even(x, grid) + 1e-4 * x,
    "block": lambda x, grid, g: torch.where(_block(x, grid, g), x + 5, 1e-3 * x),
    "block in zeros": lambda x, grid, g: torch.where(_block(x, grid, g), x, torch.zeros_like(x)),
    "sparse": lambda x, grid, g: torch.where(_some(x, 0.01, g), x, torch.zeros_like(x)),
    "sparse scales": lambda x, grid, g: torch.where(_some(x, 0.05, g), x * _ramp(x, grid, 8), torch.zeros_like(x)),
    "one position": lambda x, grid, g: _corner(x, 1.0, 0.0),
    "zeros": lambda x, grid, g: torch.zeros_like(x),
}
# Of a table (1, offsets, k, u), on the grid of its window.
TABLES = (
    "normal",
    "constant",
    "150 in a constant",
    "chess board",
    "one position",
    "ramp",
    "offset",
    "scale 1e-6",
    "scale 1e6",
)


def hostile(kind: str, shape: tuple[int, ...], grid: tuple[int, ...], seed: int, dtype: torch.dtype) -> Tensor:
    """A tensor (b, positions of the grid, ...) of that kind."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    return MAPS[kind](x, grid, generator).to(dtype)


def windows(energy: Tensor, grid: Grid) -> Tensor:
    """For every query the sum of energies (b, m) in its window, written out offset by offset."""
    maps = energy.double().reshape(len(energy), *grid.context)
    total = torch.zeros(len(energy), *grid.queries, dtype=torch.float64)
    for offset in torch.cartesian_prod(*(torch.arange(r) - r // 2 for r in grid.scope)).reshape(grid.rows, -1).tolist():
        source, target = [slice(None)], [slice(None)]
        for o, m, n, s, d in zip(offset, grid.context, grid.queries, grid.stride, grid.dilation, strict=True):
            at = [i for i in range(n) if 0 <= s * i + d * o < m]
            if not at:
                break
            source.append(slice(s * at[0] + d * o, s * at[-1] + d * o + 1, s))
            target.append(slice(at[0], at[-1] + 1))
        else:
            total[tuple(target)] += maps[tuple(source)]
    return total.flatten(1)


def norms(x: Tensor) -> Tensor:
    """Of every position."""
    return x.double().flatten(2).norm(dim=2)


class Bounds:
    """What the outputs and gradients of one position term may be off by, at every position; stride 1."""

    def __init__(self, q: Tensor, values: Tensor, table: Tensor, dy: Tensor, grid: Grid) -> None:
        c = BOUND[q.dtype]
        table_norm = table.double().norm()
        self.seen = windows(norms(values).square(), grid).sqrt()
        heads = q.double().norm(dim=3) * dy.double().norm(dim=3)
        self.given = heads.norm(dim=2)
        back = Grid(grid.queries, grid.context, grid.scope, grid.stride, grid.dilation)
        self.reached = windows(self.given.square(), back).sqrt()
        self.bounds = {
            "y": c * norms(q) * table_norm * self.seen,
            "dq": c * norms(dy) * table_norm * self.seen,
            "dvalues": c * table_norm * self.reached,
            "dtable": (c * (self.given * self.seen).sum()).reshape(1, 1),
        }

    def excess(self, ours: dict[str, Tensor], exact: dict[str, Tensor]) -> dict[str, float]:
        """The largest error in units of what it may be: of every position, and of every row of the table."""
        result = {}
        for name, bound in self.bounds.items():
            got, true = (t[name][None] if name == "dtable" else t[name] for t in (ours, exact))
            error = norms(got.double() - true)
            # Below the smallest normal number there are no more digits, whatever the algorithm.
            floor = math.sqrt(got[0, 0].numel()) * torch.finfo(got.dtype).tiny
            # And close to the largest one products and sums may overflow on the way.
            largest = torch.finfo(got.dtype).max / 1e4
            fits = (bound / BOUND[got.dtype] < largest) & (self.given.max() < largest)
            ratio = torch.where((error <= floor) | ~fits, 0.0, error / bound)
            result[name] = math.inf if ratio.isnan().any() else ratio.max().item()
        return result


def blur(x: Tensor, grid: tuple[int, ...], times: int = 4) -> Tensor:
    """Smooth maps, whose spectra are concentrated."""
    maps = x.reshape(len(x), *grid, -1).movedim(-1, 1).flatten(0, 1)[:, None]
    kernel = torch.ones(1, 1, *[3] * len(grid), dtype=x.dtype) / 3 ** len(grid)
    for _ in range(times):
        maps = {1: F.conv1d, 2: F.conv2d}[len(grid)](maps, kernel, padding=1)
    return maps[:, 0].unflatten(0, (len(x), -1)).movedim(1, -1).reshape(x.shape)


MAPS["smooth"] = lambda x, grid, g: blur(x, grid)
MAPS["smooth with outliers"] = lambda x, grid, g: torch.where(_some(x, 0.003, g), 300 * x, blur(x, grid))
