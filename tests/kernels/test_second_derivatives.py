"""Derivatives of gradients through the kernels are those of torch's own operations."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch.func import functional_call

from compare import assert_close, randomise
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
    assert_close(second_derivatives(fast, tensors), second_derivatives(slow, tensors), 1e-10)


@pytest.mark.parametrize(
    "grid",
    [
        Grid.of((5, 7), scope=3),
        Grid.of((5, 7), scope=(3, 21)),
        Grid.of((5, 7), scope=3, causal=True),
        Grid.of((5, 7), scope=(3, 5), causal="strict"),
        Grid.of((5, 7), scope=(3, 1), stride=2, dilation=(1, 2)),
        Grid.of((13,), scope=5, causal=True),
    ],
    ids=str,
)
def test_position(grid):
    fast, slow = (lambda *t, plan=plan: position_term(*t, grid, plan=plan) for plan in ("native", "query_first"))
    check(fast, slow, (2, grid.n, 3, 5), (2, grid.m, 7, 2), (grid.rows, 5, 2))


def test_batch_norm():
    def slow(x, weight, bias):
        return F.batch_norm(x, None, None, weight, bias, training=True)

    check(lambda *t: batch_norm(*t, 1e-5)[0], slow, (31, 7), (7,), (7,))


@pytest.mark.parametrize("norm", ["batch", "rms", "none"])
@pytest.mark.parametrize("training", [True, False])
def test_whole_layer(norm, training):
    """By the position bias too, and by inputs whose gradient is not wanted."""
    layer = LambdaLayer2d(8, k=2, u=3, scope=3, norm=norm, position_bias=True).double().train(training)
    randomise(layer)
    names, tensors = zip(*layer.named_parameters(), strict=True)
    x = torch.randn(2, 8, 5, 7, dtype=torch.float64)

    def run(plan):
        def function(x, *parameters):
            layer.plan = plan
            return functional_call(layer, dict(zip(names, parameters, strict=True)), x)

        return function

    check(run(None), run("query_first"), x.shape, *(t.shape for t in tensors))
    check(lambda x: run(None)(x, *tensors), lambda x: run("query_first")(x, *tensors), x.shape)


def test_gradient_penalty_trains():
    """The usual use: the norm of the gradient by the input, as part of a loss."""
    layer = LambdaLayer2d(8, scope=3)
    x = torch.randn(2, 8, 5, 7, requires_grad=True)
    (gradient,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    gradient.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())
    assert layer.table.weight.grad.any()
