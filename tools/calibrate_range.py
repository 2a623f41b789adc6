#!/usr/bin/env python3
"""Search for maps whose Fourier transforms are less accurate than their dynamic range promises.

`kernels/native/range.h` and `ops/plans/range.py` measure the dynamic range of an example, and transforms are in float32
only below a limit. That limit is calibrated here: random maps and tables, structured to be as bad as can be (blocks,
smooth and constant maps, single positions, all in noise of any level), go through forced transforms. For every octave
of the range the largest errors are printed, of outputs and both gradients, in units of the documented bound. Below the
limit all have to be under 1.
"""

import argparse
import math
import random
import sys
from collections import defaultdict
from dataclasses import replace

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from lambdanets.kernels import unavailable
from lambdanets.ops import Grid, position_term
from lambdanets.ops.geometry import reachable_scope
from lambdanets.ops.plans import range as dynamic_range
from lambdanets.ops.plans.fourier import Spectra

BOUND = 1e-6  # of float32, as documented
STRUCTURES = ("noise", "constant", "smooth", "position", "block")


def structured(kind: str, shape: tuple[int, ...], size: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """A map (positions of size, ...) of that kind."""
    x = torch.randn(shape, generator=generator)
    if kind == "constant":
        return torch.ones_like(x)
    if kind == "position":
        return torch.cat([x[:1], torch.zeros_like(x[1:])])
    if kind == "smooth":
        maps = x.reshape(*size, -1).movedim(-1, 0)[:, None]
        kernel = torch.ones(1, 1, *[3] * len(size)) / 3 ** len(size)
        for _ in range(12):
            maps = {1: F.conv1d, 2: F.conv2d}[len(size)](maps, kernel, padding=1)
        return maps[:, 0].movedim(0, -1).reshape(shape)
    if kind == "block":
        return x * box(size).reshape(-1, *[1] * (x.ndim - 1))
    return x


def box(size: tuple[int, ...]) -> Tensor:
    """Ones in a random box of the map, zeros elsewhere."""
    inside = torch.zeros(size)
    first = [random.randrange(n) for n in size]
    share = random.choice([0.02, 0.1, 0.3, 0.7])
    inside[tuple(slice(f, f + max(1, int(share * n))) for f, n in zip(first, size, strict=True))] = 1
    return inside


def loud_and_quiet(shape: tuple[int, ...], size: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """One structure in a box, another everywhere, at a random level."""
    loud, quiet = (structured(random.choice(STRUCTURES), shape, size, generator) for _ in range(2))
    both = loud * box(size).reshape(-1, *[1] * (len(shape) - 1)) + 10 ** random.uniform(-3, 0) * quiet
    return both + (10 ** random.uniform(-2, 2) if random.random() < 0.2 else 0)


def with_gradients(tensors: list[Tensor], dy: Tensor, grid: Grid, plan: str) -> list[Tensor]:
    q, values, table = (t.detach().clone().requires_grad_() for t in tensors)
    y = position_term(q, values, table, grid, plan=plan)
    return [y.detach().double(), *(g.double() for g in torch.autograd.grad(y, [q, values, table], dy))]


def trial(seed: int) -> dict[str, tuple[float, float]]:
    """The range and the error in units of the bound, of the output and of both gradients that transforms make."""
    random.seed(seed)
    generator = torch.Generator().manual_seed(seed)
    two = random.random() < 0.75
    size = (random.randint(9, 150), random.randint(9, 150)) if two else (random.randint(60, 1500),)
    grid = Grid.of(size, scope=random.choice([9, 11, 13, 15, 23, 31, 63] if two else [31, 101, 401, 1001]))
    grid = replace(grid, scope=reachable_scope(grid))
    h, k, v = 2, random.choice([1, 2, 4]), random.choice([1, 4, 8])
    q = torch.randn(1, grid.n, h, k, generator=generator)
    values = loud_and_quiet((grid.m, v, 1), size, generator)[None]
    table = structured(random.choice(STRUCTURES), (grid.rows, k, 1), grid.scope, generator)
    dy = loud_and_quiet((grid.n, h, v), size, generator)[None]
    y, _, dvalues, dtable = with_gradients([q, values, table], dy, grid, "native_fft")
    exact = with_gradients([t.double() for t in (q, values, table)], dy.double(), grid, "native_direct")

    spectra = Spectra(values, table, grid)
    seen, given = dynamic_range.of_values(values, grid), dynamic_range.of_gradients(q, dy, grid)
    points, gain, norm = math.prod(spectra.size), spectra.gain(), table.double().norm()
    ranges = [dynamic_range.spread_of(t, gain, points) for t in (seen, given)]
    ranges.append(dynamic_range.table_spread_of(seen, given, points))
    total = (given.positions * seen.windows).sqrt().sum(1, keepdim=True)
    bounds = [q.double().flatten(2).norm(dim=2) * norm * seen.windows.sqrt(), norm * given.windows.sqrt(), total]
    results = {}
    pairs = {"y": (y, exact[0]), "dvalues": (dvalues, exact[2]), "dtable": (dtable[None], exact[3][None])}
    for (name, (ours, true)), measure, bound in zip(pairs.items(), ranges, bounds, strict=True):
        error = (ours - true).flatten(2).norm(dim=2) / (BOUND * bound)
        error = torch.where(bound > 0, error, 0.0)  # what is exactly zero is checked by tests
        results[name] = measure.item(), error.max().item()
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--trials", type=int, default=2000, help="how many random maps (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="the first of them (%(default)s)")
    options = parser.parse_args()
    if unavailable() is not None:
        print(f"there are no kernels to calibrate: {unavailable()}", file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    worst: dict[tuple[str, float], tuple[float, int]] = defaultdict(lambda: (0.0, -1))
    violations = 0
    for seed in range(options.seed, options.seed + options.trials):
        for name, (measure, error) in trial(seed).items():
            octave = 2.0 ** math.floor(math.log2(min(max(measure, 2**-5), 2**30)))
            worst[name, octave] = max(worst[name, octave], (error, seed))
            violations += measure <= dynamic_range.LIMIT and error > 1
        if sys.stderr.isatty() and seed % 20 == 0:
            print(f"\r{seed - options.seed} of {options.trials}", end="", file=sys.stderr)
    print("\nrange from    largest error, in units of the bound (seed)")
    for octave in sorted({octave for _, octave in worst}):
        cells = (worst.get((name, octave), (math.nan, -1)) for name in ("y", "dvalues", "dtable"))
        print(f"{octave:10.3f}", *(f"{error:10.3f} ({seed})" for error, seed in cells))
    print(f"{violations} violations below the limit of {dynamic_range.LIMIT:g}")
    return int(violations > 0)


if __name__ == "__main__":
    sys.exit(main())
