"""The same call gives the same bits, alone and in a batch, and another number of threads the same numbers."""

import pytest
import torch

from compare import assert_close
from lambdanets.kernels import unavailable
from lambdanets.kernels.library import AUTO, DIRECT, FFT
from lambdanets.kernels.operators import batch_norm
from lambdanets.ops import Grid
from lambdanets.ops.plans import Inputs
from lambdanets.ops.plans.native import NATIVE

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=f"no kernels: {unavailable()}")

GRIDS = [Grid.of((13, 17), scope=7), Grid.of((211,), scope=23, causal=True), Grid.of((211,), scope=23)]
IDS = ["2-d", "1-d causal", "1-d"]


@pytest.fixture(params=[DIRECT, FFT], ids=["direct", "fft"])
def algorithm(request):
    return request.param


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def run(grid, b, algorithm, h=3, k=7, v=11, u=2):
    generator = torch.Generator().manual_seed(b)
    shapes = {"q": (b, grid.n, h, k), "values": (b, grid.m, v, u), "table": (grid.rows, k, u), "content": (b, k, v)}
    leaves = {n: torch.randn(s, generator=generator).requires_grad_() for n, s in shapes.items()}
    y = NATIVE[algorithm].run(Inputs(**leaves, geometry=grid))
    cotangent = torch.randn(y.shape, generator=generator)
    gradients = torch.autograd.grad(y, list(leaves.values()), cotangent)
    return {"y": y.detach(), **{f"d {name}": g for name, g in zip(leaves, gradients, strict=True)}}


@pytest.mark.parametrize("b", [1, 3, 8])
@pytest.mark.parametrize("grid", GRIDS, ids=IDS)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_repeated_calls_are_bit_equal(algorithm, grid, b, threads):
    torch.set_num_threads(threads)
    first = run(grid, b, algorithm)
    for _ in range(5):
        again = run(grid, b, algorithm)
        assert [name for name in first if not torch.equal(first[name], again[name])] == []


@pytest.mark.parametrize("b", [1, 3, 8])
@pytest.mark.parametrize("grid", GRIDS, ids=IDS)
def test_the_number_of_threads_does_not_matter(algorithm, grid, b):
    results = {}
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results[threads] = run(grid, b, algorithm)
    for threads in (2, 3):
        assert_close(results[threads], {name: t.double() for name, t in results[1].items()}, 1e-5)


NEIGHBOURS = {
    "ordinary": lambda values: values,
    "outliers": lambda values: torch.cat([1e6 * values[:, :1], values[:, 1:]], 1),
    "NaN": lambda values: values.masked_fill(torch.arange(values.shape[1])[:, None, None] == 5, torch.nan),
}


@pytest.mark.parametrize("neighbour", NEIGHBOURS.values(), ids=NEIGHBOURS.keys())
@pytest.mark.parametrize("own", NEIGHBOURS.values(), ids=NEIGHBOURS.keys())
@pytest.mark.parametrize("plan", [AUTO, DIRECT, FFT], ids=["auto", "direct", "fft"])
@pytest.mark.parametrize("threads", [1, 2])
def test_an_example_has_the_same_bits_alone_and_in_any_batch(plan, own, neighbour, threads):
    """Outputs always; gradients with one thread, for with several the sums of a batch are shared out otherwise.

    The automatic choice counts idle threads, so that it may change for fewer examples than threads.
    """
    torch.set_num_threads(threads)
    grid = Grid.of((31, 29), scope=23)
    q, values, dy = torch.randn(5, grid.n, 2, 4), torch.randn(5, grid.m, 16, 1), torch.randn(5, grid.n, 2, 16)
    table, content = torch.randn(grid.rows, 4, 1), torch.randn(5, 4, 16)
    values = torch.cat([neighbour(values[:2]), own(values[2:3]), neighbour(values[3:])])
    least = threads if plan == AUTO else 1

    def some(first, last):
        leaves = [t[first:last].clone().requires_grad_() for t in (q, values, content)]
        y = NATIVE[plan].run(Inputs(leaves[0], leaves[1], table, grid, content=leaves[2]))
        gradients = torch.autograd.grad(y, leaves, dy[first:last]) if threads == 1 else []
        return [t[2 - first] for t in (y.detach(), *gradients)]

    expected = some(0, 5)
    for first, last in ((2, 2 + least), (1, 4), (2, 5)):
        for ours, whole in zip(some(first, last), expected, strict=True):
            assert torch.equal(ours.nan_to_num(7), whole.nan_to_num(7))


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
