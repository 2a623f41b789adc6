"""The same call gives the same bits, and another number of threads the same numbers."""

import pytest
import torch

from compare import assert_close
from lambdanets.kernels import unavailable
from lambdanets.kernels.library import use_way
from lambdanets.kernels.operators import batch_norm
from lambdanets.ops import Grid
from lambdanets.ops.plans.native import native_terms

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=f"no kernels: {unavailable()}")

GRIDS = [Grid.of((13, 17), scope=7), Grid.of((211,), scope=23, causal=True), Grid.of((211,), scope=23)]
IDS = ["2-d", "1-d causal", "1-d"]


@pytest.fixture(params=["direct", "spectral"])
def way(request):
    before = use_way(request.param)
    yield
    use_way(before)


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def run(grid, b, h=3, k=7, v=11, u=2):
    generator = torch.Generator().manual_seed(b)
    shapes = {"q": (b, grid.n, h, k), "values": (b, grid.m, v, u), "table": (grid.rows, k, u), "content": (b, k, v)}
    leaves = {n: torch.randn(s, generator=generator).requires_grad_() for n, s in shapes.items()}
    y = native_terms(**leaves, geometry=grid)
    cotangent = torch.randn(y.shape, generator=generator)
    gradients = torch.autograd.grad(y, list(leaves.values()), cotangent)
    return {"y": y.detach(), **{f"d {name}": g for name, g in zip(leaves, gradients, strict=True)}}


@pytest.mark.parametrize("b", [1, 3, 8])
@pytest.mark.parametrize("grid", GRIDS, ids=IDS)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_repeated_calls_are_bit_equal(way, grid, b, threads):
    torch.set_num_threads(threads)
    first = run(grid, b)
    for _ in range(5):
        again = run(grid, b)
        assert [name for name in first if not torch.equal(first[name], again[name])] == []


@pytest.mark.parametrize("b", [1, 3, 8])
@pytest.mark.parametrize("grid", GRIDS, ids=IDS)
def test_the_number_of_threads_does_not_matter(way, grid, b):
    results = {}
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results[threads] = run(grid, b)
    for threads in (2, 3):
        assert_close(results[threads], {name: t.double() for name, t in results[1].items()}, 1e-5)


@pytest.mark.parametrize("rows", [3, 64, 211])
def test_batch_norm_has_the_same_bits_with_any_number_of_threads(rows):
    x, g = torch.randn(2, rows, 13)
    weight, bias = torch.randn(2, 13)
    results = []
    for threads in (1, 2, 3, 3):
        torch.set_num_threads(threads)
        leaves = [t.clone().requires_grad_() for t in (x, weight, bias)]
        y, mean, var = batch_norm(*leaves, 1e-5)
        results.append([y, mean, var, *torch.autograd.grad(y, leaves, g)])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
