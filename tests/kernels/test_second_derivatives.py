"""Derivatives of gradients through the kernels are those of torch's own operations, or an error: no other numbers."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from compare import assert_close
from lambdanets import LambdaLayer2d
from lambdanets.kernels import unavailable
from lambdanets.kernels.operators import batch_norm
from lambdanets.ops import Grid, position_term

pytestmark = [
    pytest.mark.unchecked,
    pytest.mark.skipif(unavailable() is not None, reason=f"no kernels: {unavailable()}"),
]


def second_derivatives(function, tensors):
    leaves = [t.detach().requires_grad_() for t in tensors]
    first = torch.autograd.grad(function(*leaves).pow(3).sum(), leaves, create_graph=True)
    second = torch.autograd.grad(sum(g.square().sum() for g in first), leaves, allow_unused=True)
    return {
        str(i): torch.zeros_like(t) if g is None else g for i, (t, g) in enumerate(zip(leaves, second, strict=True))
    }


def check(fast, slow, *shapes):
    tensors = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    expected = second_derivatives(slow, tensors)
    try:
        ours = second_derivatives(fast, tensors)
    except (NotImplementedError, RuntimeError):
        return
    assert_close(ours, expected, 1e-10)


def test_position():
    grid = Grid.of((5, 7), scope=3)
    fast, slow = (lambda *t, plan=plan: position_term(*t, grid, plan=plan) for plan in ("native", "query_first"))
    check(fast, slow, (2, 35, 3, 5), (2, 35, 7, 2), (9, 5, 2))


def test_batch_norm():
    def slow(x, weight, bias):
        return F.batch_norm(x, None, None, weight, bias, training=True)

    check(lambda *t: batch_norm(*t, 1e-5)[0], slow, (31, 7), (7,), (7,))


def test_whole_layer():
    layer = LambdaLayer2d(8, k=2, scope=3).double()
    x = torch.randn(2, 8, 14, 14, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(first.square().sum(), x)
