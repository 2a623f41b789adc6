"""Which algorithm the kernels compute a position term by: direct, or Fourier transforms."""

import math

import pytest
import torch
from torch.func import functional_call

from compare import assert_close, with_gradients
from lambdanets import LambdaLayer2d
from lambdanets.kernels import instruction_set, unavailable
from lambdanets.kernels.library import (
    AUTO,
    DIRECT,
    FFT,
    HAS_THREADS,
    position_cost,
    threads,
    use_instruction_set,
    uses_fft,
)
from lambdanets.kernels.operators.definitions import describe
from lambdanets.ops import Grid
from lambdanets.ops.plans.native import window_of

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=f"no kernels: {unavailable()}")


@pytest.fixture(autouse=True, params=["baseline", "avx2", "avx512"])
def _settings(request):
    """The choice depends on the width of vectors and on the number of threads, so both are forced."""
    threads, instructions = torch.get_num_threads(), instruction_set()
    if not use_instruction_set(request.param):
        pytest.skip(f"this machine does not run {request.param}")
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)
    use_instruction_set(instructions)


def taken(grid, *, b=8, h=4, k=16, v=16, u=1, algorithm=AUTO, dtype=torch.float32):
    """Forward and backward."""
    table, window = window_of(grid, torch.empty(grid.rows, k, u, device="meta"), algorithm)
    q, values, y = (torch.empty(b, *s) for s in ((grid.n, h, k), (grid.m, v, u), (grid.n, h, v)))
    problem = describe(q, values, table, window, y=y)
    return {uses_fft(problem, dtype, backward=backward) for backward in (False, True)}


LARGE = Grid.of((56, 56), scope=23)


@pytest.mark.parametrize(
    ("grid", "sizes"),
    [
        (LARGE, {}),
        (LARGE, {"v": 32}),
        (LARGE, {"b": 1}),
        (Grid.of((28, 28), scope=23), {"v": 32}),
        (Grid.of((28, 28), scope=55), {"v": 128}),
        (Grid.of((2048,), scope=4095), {}),
        (Grid.of((65536,), scope=131071), {"b": 1}),  # the plans count on it, with spectra that no cache holds
        (Grid.of((192, 192), scope=383), {"b": 1}),
    ],
)
def test_large_windows_are_transformed(grid, sizes):
    assert taken(grid, **sizes) == {True}
    assert taken(grid, **sizes, algorithm=DIRECT) == {False}


@pytest.mark.parametrize(
    ("grid", "sizes"),
    [
        (Grid.of((56, 56), scope=3), {}),
        (Grid.of((7, 7), scope=13), {"v": 128}),
        (Grid.of((400, 400), scope=7), {"b": 1}),
    ],
)
def test_small_windows_are_not(grid, sizes):
    assert taken(grid, **sizes) == {False}
    assert taken(grid, **sizes, algorithm=FFT) == {True}


@pytest.mark.parametrize(
    "grid",
    [
        Grid.of((56, 56), scope=23, causal=True),
        Grid.of((56, 56), scope=23, stride=2),
        Grid.of((56, 56), scope=23, dilation=2),
    ],
    ids=["causal", "stride", "dilation"],
)
def test_some_grids_have_no_transforms(grid):
    assert taken(grid, algorithm=FFT) == {False}


@pytest.mark.skipif(not HAS_THREADS, reason="kernels without OpenMP")
def test_one_map_for_many_threads_is_not_transformed():
    """Its queries can be shared out, its transforms cannot."""
    torch.set_num_threads(16)
    assert taken(LARGE, b=1) == {False}


def costs(grid, *, b=8, h=4, k=16, v=16, u=1, dtype=torch.float32, backward=False):
    _, window = window_of(grid, torch.empty(grid.rows, k, u, device="meta"))
    return position_cost(b, h, k, v, u, window, dtype, backward=backward)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("sizes", [{}, {"v": 32}, {"b": 1}, {"h": 1, "k": 5, "v": 3, "u": 2}], ids=str)
@pytest.mark.parametrize("scope", [1, 3, 7, 13, 23, 55])
def test_the_cheaper_algorithm_is_chosen(scope, sizes, dtype):
    grid = Grid.of((28, 28), scope=scope)
    cheaper = [costs(grid, **sizes, dtype=dtype, backward=backward) for backward in (False, True)]
    assert taken(grid, **sizes, dtype=dtype) == {fft < direct for direct, fft in cheaper}


def test_direct_cost_counts_the_pairs_in_scope():
    """h (k + v) multiply-adds for each, and backward h (3 k + 2 v); half of them if causal, fewer with a stride."""
    grid = Grid.of((28, 26), scope=(5, 3), dilation=(2, 3), stride=(1, 2))
    pairs = sum(0 <= i + 2 * a < 28 for i in range(28) for a in range(-2, 3))
    pairs *= sum(0 <= 2 * j + 3 * a < 26 for j in range(13) for a in range(-1, 2))
    for h, k, v, u in ((4, 16, 16, 1), (2, 48, 32, 3)):
        assert costs(grid, h=h, k=k, v=v, u=u)[0] == pytest.approx(pairs * u * h * (k + v))
        backward = costs(grid, h=h, k=k, v=v, u=u, backward=True)[0]
        assert backward == pytest.approx(pairs * u * h * (3 * k + 2 * v))
    causal = costs(Grid.of((28, 26), scope=(5, 3), causal=True))[0]
    assert causal == pytest.approx(costs(Grid.of((28, 26), scope=(5, 3)))[0] * 8 / 15)


@pytest.mark.parametrize("options", [{"causal": True}, {"stride": 2}, {"dilation": 2}], ids=str)
def test_without_transforms_their_cost_is_infinite(options):
    direct, fft = costs(Grid.of((56, 56), scope=23, **options))
    assert math.isfinite(direct)
    assert math.isinf(fft)


def test_idle_threads_count():
    """One map is transformed by one thread, unless its channels are several vectors."""
    alone, together = costs(LARGE, b=1, v=4), costs(LARGE, b=8, v=4)
    assert alone[0] == together[0]
    if threads() > 1:
        assert alone[1] > 1.5 * together[1]


@pytest.mark.parametrize("training", [True, False])
def test_a_whole_layer_is_the_same_by_both(training):
    """With norms, content and several intra-depths, on a map where the kernels would take the transforms."""
    layer = LambdaLayer2d(24, k=7, h=2, u=2, scope=23, position_bias=True).double().train(training)
    x = torch.randn(2, 24, 19, 27, dtype=torch.float64)
    assert taken(Grid.of((19, 27), scope=23), b=2, h=2, k=7, v=12, u=2, dtype=torch.float64) == {True}
    results = {}
    for layer.plan in ("native_direct", "native_fft"):
        results[layer.plan] = with_gradients(
            lambda t: functional_call(layer, {n: p for n, p in t.items() if n != "x"}, t["x"]),
            {"x": x, **dict(layer.named_parameters())},
        )
    assert_close(results["native_fft"], results["native_direct"], 1e-10)
