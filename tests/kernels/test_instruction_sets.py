"""The kernels give the outputs and gradients of the query-first plan with every instruction set of this machine.

By both algorithms: direct, and Fourier transforms, which exist for some grids only.
"""

import pytest
import torch

from compare import TOLERANCE, assert_close
from lambdanets.kernels import instruction_set, unavailable
from lambdanets.kernels.library import AUTO, FFT, use_instruction_set
from lambdanets.ops import Grid, position_term
from lambdanets.ops.plans import Inputs
from lambdanets.ops.plans.native import NATIVE

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=f"no kernels: {unavailable()}")

GRIDS = {
    "1-d": Grid.of((23,), scope=7),
    "1-d causal": Grid.of((23,), scope=7, causal=True),
    "1-d of several blocks": Grid.of((541,), scope=5),
    "2-d": Grid.of((7, 11), scope=5),
    "causal": Grid.of((7, 11), scope=5, causal=True),
    "strict": Grid.of((7, 11), scope=(3, 5), causal="strict"),
    "dilation": Grid.of((11, 13), scope=(5, 3), dilation=(2, 3)),
    "stride": Grid.of((11, 13), scope=5, stride=(2, 3)),
    "global": Grid.of((7, 5), scope=(13, 9)),
    "cross": Grid((5, 13), (11, 7), (9, 7), (1, 1), (1, 1)),
    "one position": Grid.of((1, 1), scope=1),
    "all at once": Grid((11, 7), (5, 13), (7, 9), (3, 2), (2, 3), causal=True),
}
# Lengths with every radix of the transforms in every place, rows longer than a vector, windows larger than the map.
FFT_GRIDS = {
    **{name: GRIDS[name] for name in ("1-d", "1-d of several blocks", "2-d", "global", "cross", "one position")},
    "8 and 2": Grid.of((29, 13), scope=(7, 7)),
    "5": Grid.of((21, 23), scope=(9, 5)),
    "4, 3 and 5": Grid.of((33, 18), scope=(7, 5)),
    "wide": Grid.of((3, 61), scope=(5, 23)),
    "narrow": Grid.of((47, 2), scope=(31, 3)),
}
SIZES = [
    {"b": 2, "h": 3, "k": 5, "v": 7, "u": 1},
    {"b": 1, "h": 5, "k": 13, "v": 19, "u": 3},
    {"b": 3, "h": 1, "k": 1, "v": 1, "u": 2},
    {"b": 1, "h": 9, "k": 16, "v": 32, "u": 1},  # whole vectors, which are not copied
]


def transposed(t):
    """The same numbers, with the axes in memory reversed."""
    return t.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)


def sliced(t):
    """The same numbers, as part of a wider buffer of NaN."""
    wide = t.new_full((*t.shape[:-1], t.shape[-1] + 3), torch.nan)
    wide[..., 1:-2] = t
    return wide[..., 1:-2]


def expanded(t):
    """The numbers of one head, or of one channel of the values, for all."""
    return t[:, :, :1].expand_as(t)


LAYOUTS = (transposed, sliced, expanded)
INSTRUCTION_SETS = ("baseline", "avx2", "avx512")


@pytest.fixture(autouse=True)
def _as_before():
    before = instruction_set()
    yield
    use_instruction_set(before)


def operands(grid, dtype, b, h, k, v, u):
    """q, values, table, content lambdas and the output's gradient."""
    shapes = [(b, grid.n, h, k), (b, grid.m, v, u), (grid.rows, k, u), (b, k, v), (b, grid.n, h, v)]
    return [torch.randn(shape, dtype=torch.float64).to(dtype) for shape in shapes]


def with_gradients(function, tensors, cotangent):
    """As in compare.py, but every tensor keeps its layout, and so does the gradient that arrives."""
    leaves = [t.detach().requires_grad_() for t in tensors]
    y = function(*leaves)
    gradients = torch.autograd.grad(y, leaves, cotangent)
    return dict(zip(["y", "dq", "dvalues", "dtable", "dcontent"], [y.detach(), *gradients], strict=False))


def named(instructions, results):
    """With names that say which instruction set is wrong."""
    return {f"{name}, {instructions}": tensor for name, tensor in results.items()}


def check(grid, tensors, dtype, algorithm=AUTO):
    """The position term alone, and together with a content term."""
    *inputs, cotangent = tensors
    exact = [t.double().contiguous() for t in tensors]

    def slow(q, values, table, content=None):
        y = position_term(q, values, table, grid, plan="query_first")
        return y if content is None else y + torch.einsum("bnhk,bkv->bnhv", q, content)

    def fast(q, values, table, content=None):
        return NATIVE[algorithm].run(Inputs(q, values, table, grid, content=content))

    for count in (3, 4):
        expected = with_gradients(slow, exact[:count], exact[-1])
        for instructions in filter(use_instruction_set, INSTRUCTION_SETS):
            ours = with_gradients(fast, inputs[:count], cotangent)
            assert_close(named(instructions, ours), named(instructions, expected), TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS.keys())
def test_any_grid(grid, sizes, dtype):
    torch.set_num_threads(2)
    check(grid, operands(grid, dtype, **sizes), dtype)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("grid", FFT_GRIDS.values(), ids=FFT_GRIDS.keys())
def test_any_grid_through_transforms(grid, sizes, dtype):
    torch.set_num_threads(2)
    check(grid, operands(grid, dtype, **sizes), dtype, FFT)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("which", [(0,), (1,), (4,), (0, 1, 4)], ids=["q", "values", "dy", "all"])
@pytest.mark.parametrize("sizes", SIZES[1::2], ids=str)
def test_any_layout(sizes, which, layout, dtype):
    grid = GRIDS["all at once"]
    tensors = operands(grid, dtype, **sizes)
    for i in which:
        tensors[i] = layout(tensors[i])
    check(grid, tensors, dtype)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", SIZES[1::2], ids=str)
def test_any_layout_through_transforms(sizes, layout, dtype):
    grid = GRIDS["cross"]
    q, values, table, content, cotangent = operands(grid, dtype, **sizes)
    check(grid, [layout(q), layout(values), table, content, layout(cotangent)], dtype, FFT)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_tables_and_content_lambdas_in_any_layout(dtype):
    """The kernels want these contiguous; the operators copy them if they are not."""
    grid = GRIDS["2-d"]
    q, values, table, content, cotangent = operands(grid, dtype, **SIZES[1])
    table = table.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    content = content.transpose(1, 2).contiguous().transpose(1, 2)
    check(grid, [q, values, table, content, cotangent], dtype)


@pytest.mark.parametrize("instructions", INSTRUCTION_SETS)
def test_this_machine_has_every_instruction_set(instructions):
    """What is skipped here is missing in all other tests."""
    if not use_instruction_set(instructions):
        pytest.skip(f"this machine does not run {instructions}")
    assert instruction_set() == instructions


def test_an_unknown_instruction_set_changes_nothing():
    before = instruction_set()
    assert not use_instruction_set("abacus")
    assert instruction_set() == before
