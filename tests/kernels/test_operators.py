"""What torch asks of an operator: schema, fake tensors, autograd registration and tracing, all by torch's own check."""

import pytest
import torch

from lambdanets.kernels import unavailable
from lambdanets.kernels.library import AUTO
from lambdanets.kernels.operators import batch_norm, layer, position_term, rectified_norm, rectified_norms

pytestmark = [
    pytest.mark.unchecked,
    pytest.mark.skipif(unavailable() is not None, reason=f"no kernels: {unavailable()}"),
]


def tensors(*shapes, trains=True):
    return [torch.randn(shape, requires_grad=trains) for shape in shapes]


@pytest.mark.parametrize("trains", [True, False], ids=["with gradients", "without"])
@pytest.mark.parametrize("content", [True, False], ids=["both terms", "position only"])
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced"])
def test_position(layout, content, trains):
    b, h, k, v, u = 2, 3, 5, 7, 2
    grid = ([3, 11], [5, 7], [3, 5], [2, 1], [1, 2], 15, AUTO)
    q, values, table, lc = tensors((b, 33, h, k), (b, 35, v, u), (15, k, u), (b, k, v), trains=trains)
    if layout == "transposed":
        q, values = (t.detach().transpose(1, 2).contiguous().transpose(1, 2) for t in (q, values))
    elif layout == "sliced":
        q, values = (torch.cat([t.detach(), t.detach()], -1)[..., : t.shape[-1]] for t in (q, values))
    q, values = (t.detach().requires_grad_(trains) for t in (q, values))
    torch.library.opcheck(position_term, (q, values, table, lc if content else None, *grid))


@pytest.mark.parametrize("trains", [True, False], ids=["with gradients", "without"])
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "columns"])
def test_batch_norm(layout, trains):
    x, weight, bias = tensors((31, 7), (7,), (7,), trains=trains)
    if layout == "transposed":
        x = x.detach().t().contiguous().t().requires_grad_(trains)
    elif layout == "columns":
        x = torch.randn(31, 19)[:, 3:10].requires_grad_(trains)
    torch.library.opcheck(batch_norm, (x, weight, bias, 1e-5))


@pytest.mark.parametrize("trains", [True, False], ids=["with gradients", "without"])
@pytest.mark.parametrize("residual", [True, False], ids=["residual", "no residual"])
def test_rectified_norm(residual, trains):
    x, weight, bias, more = tensors((2, 7, 5, 3), (7,), (7,), (2, 7, 5, 3), trains=trains)
    torch.library.opcheck(rectified_norm, (x, weight, bias, more if residual else None, 1e-5))


@pytest.mark.parametrize("trains", [True, False], ids=["with gradients", "without"])
def test_rectified_norms(trains):
    shapes = ((2, 7, 5, 3), (7,), (7,))
    torch.library.opcheck(
        rectified_norms, (*tensors(*shapes, trains=trains), 1e-5, *tensors(*shapes, trains=trains), 1e-3)
    )


def test_statistics_have_no_gradient():
    _, mean, var = batch_norm(*tensors((31, 7), (7,), (7,)), 1e-5)
    assert not mean.requires_grad
    assert not var.requires_grad


@pytest.mark.parametrize("trains", [True, False], ids=["with gradients", "without"])
@pytest.mark.parametrize("normed", [True, False], ids=["batch norm", "no norm"])
@pytest.mark.parametrize("biased", [True, False], ids=["position bias", "no bias"])
def test_layer(biased, normed, trains):
    h, k, v, u = 3, 5, 7, 2
    grid = ([5, 7], [5, 7], [3, 5], [1, 1], [1, 2], 15, AUTO)
    columns = h * k + v * u
    projected, weight, bias, table, position_bias = tensors(
        (2, 35, columns + k * u), columns, columns, (15, k, u), k, trains=trains
    )
    norm = (weight, bias) if normed else (None, None)
    torch.library.opcheck(layer, (projected, *norm, table, position_bias if biased else None, h, k, u, 1e-5, *grid))
