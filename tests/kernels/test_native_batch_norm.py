"""The kernels' batch norm is torch's, with its gradients, also on columns of a wider matrix."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from compare import TOLERANCE, assert_close
from lambdanets.kernels import unavailable
from lambdanets.kernels.operators import batch_norm

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=f"no kernels: {unavailable()}")

EPS = 1e-5


def kernels(x, weight, bias):
    return batch_norm(x, weight, bias, EPS)


def torchs(x, weight, bias):
    y = F.batch_norm(x, None, None, weight, bias, training=True, eps=EPS)
    return y, x.mean(0), x.var(0, correction=0)


def with_gradients(function, x, weight, bias, g):
    """Outputs and gradients; x and g keep their layout."""
    leaves = [t.detach().requires_grad_() for t in (x, weight, bias)]
    y, mean, var = function(*leaves)
    gradients = torch.autograd.grad(y, leaves, g)
    names = ["y", "mean", "var", "dx", "dweight", "dbias"]
    return dict(zip(names, [t.detach() for t in (y, mean, var, *gradients)], strict=True))


def check(tensors, dtype, tolerance):
    rounded = [t.to(dtype) for t in tensors]
    expected = with_gradients(torchs, *(t.double().contiguous() for t in rounded))
    assert_close(with_gradients(kernels, *rounded), expected, tolerance)


def operands(rows, columns):
    shapes = [(rows, columns), (columns,), (columns,), (rows, columns)]
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("columns", [1, 7, 33])
@pytest.mark.parametrize("rows", [11, 63, 64, 65, 331])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_any_size(dtype, rows, columns, threads):
    torch.set_num_threads(threads)
    check(operands(rows, columns), dtype, TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("layout", ["columns of a wider matrix", "transposed", "every second row", "expanded gradient"])
def test_any_layout(layout, dtype):
    x, weight, bias, g = (t.to(dtype) for t in operands(67, 13))
    if layout == "columns of a wider matrix":
        wide = x.new_full((67, 29), torch.nan)
        wide[:, 5:18] = x
        x = wide[:, 5:18]
    elif layout == "transposed":
        x, g = x.t().contiguous().t(), g.t().contiguous().t()
    elif layout == "every second row":
        x = x.repeat_interleave(2, 0)[::2]
    else:
        g = g[:1].expand_as(g)
    check([x, weight, bias, g], dtype, TOLERANCE[dtype])


def test_two_rows_are_enough():
    check(operands(2, 5), torch.float64, TOLERANCE[torch.float64])


@pytest.mark.parametrize("rows", [67, 640, 4096])
def test_a_mean_far_from_zero_costs_few_digits(rows):
    """Squares of 1e4 minus the square of the mean would leave nothing of a variance of 1 in float32.

    Floats near 1e4 are 1/1024 apart, which limits any mean in float32: so torch's own float32 is the measure, but for
    the variance, which torch sums in double precision.
    """
    x, weight, bias, g = (t.float() for t in operands(rows, 13))
    x = x + 1e4
    exact = with_gradients(torchs, *(t.double() for t in (x, weight, bias, g)))
    ours, plain = (with_gradients(function, x, weight, bias, g) for function in (kernels, torchs))
    var, exact_var = ours.pop("var"), exact.pop("var")
    assert_close(ours, exact, TOLERANCE[torch.float32], naive=plain)
    assert ((var - exact_var).abs() / exact_var).max() < 1e-3
