"""The kernels read memory as they are told: what does not belong together must be refused before they are called."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from lambdanets import LambdaLayer2d
from lambdanets.kernels import unavailable
from lambdanets.kernels.library import AUTO
from lambdanets.kernels.operators import layer as layer_operator
from lambdanets.kernels.operators import position_term as operator
from lambdanets.ops import Grid, position_term

pytestmark = [
    pytest.mark.unchecked,
    pytest.mark.skipif(unavailable() is not None, reason=f"no kernels: {unavailable()}"),
]
GRID = Grid.of((5, 7), scope=3)
AXES = ([5, 7], [5, 7], [3, 3], [1, 1], [1, 1], 9, AUTO)


def operands(b=2, k=4, u=1, table_k=4, table_u=1, values_b=2):
    return torch.randn(b, 35, 3, k), torch.randn(values_b, 35, 6, u), torch.randn(9, table_k, table_u)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"values_b": 1}, "same batch, got b=2 and 1"),
        ({"b": 1}, "same batch, got b=1 and 2"),
        ({"table_k": 2}, "k=4 of q"),
        ({"table_u": 3}, "u=1 of values"),
    ],
)
def test_sizes_that_differ(sizes, message):
    with pytest.raises(ValueError, match=message):
        position_term(*operands(**sizes), GRID)
    with pytest.raises((ValueError, RuntimeError)):
        operator(*operands(**sizes), None, *AXES)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_dtypes_that_differ(which):
    mixed = [t.double() if i == which else t for i, t in enumerate(operands())]
    with pytest.raises((ValueError, RuntimeError), match="dtype"):
        operator(*mixed, None, *AXES)
    with pytest.raises((ValueError, RuntimeError)):
        position_term(*mixed, GRID)


def test_a_table_of_another_dtype():
    layer = LambdaLayer2d(16, scope=3)
    layer.table.double()
    with pytest.raises((ValueError, RuntimeError)):
        layer(torch.randn(2, 16, 5, 7))


@pytest.mark.parametrize("frozen", ["query_norm", "value_norm"])
@pytest.mark.parametrize("d", [256, 64], ids=["equal widths", "other widths"])
def test_one_norm_in_eval_mode(frozen, d):
    layer = LambdaLayer2d(d, scope=3).double()
    layer(torch.randn(2, d, 5, 7, dtype=torch.float64))  # statistics that are not those of the start
    x = torch.randn(2, d, 5, 7, dtype=torch.float64)
    getattr(layer, frozen).eval()
    state = {name: t.clone() for name, t in layer.state_dict().items()}
    fast, after = layer(x), {name: t.clone() for name, t in layer.state_dict().items()}
    layer.load_state_dict(state)
    handles = [m.register_forward_hook(lambda *_: None) for m in (layer.query, layer.query_norm, layer.value_norm)]
    torch.testing.assert_close(fast, layer(x))
    for name, t in layer.state_dict().items():
        torch.testing.assert_close(t, after[name], msg=name)
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize("training", [True, False])
def test_checkpoints(training):
    layer = LambdaLayer2d(16, scope=3).double().train(training)
    x = torch.randn(2, 16, 5, 7, dtype=torch.float64, requires_grad=True)
    (plain,) = torch.autograd.grad(layer(x).square().sum(), x)
    (again,) = torch.autograd.grad(checkpoint(layer, x, use_reentrant=False).square().sum(), x)
    torch.testing.assert_close(plain, again)


def test_forward_mode_is_right_or_refused():
    layer = LambdaLayer2d(16, scope=3).double().eval()
    x, dx = torch.randn(2, 1, 16, 5, 7, dtype=torch.float64)
    try:
        _, tangent = torch.func.jvp(layer, (x,), (dx,))
    except (RuntimeError, NotImplementedError):
        return
    step = 1e-6
    torch.testing.assert_close(
        tangent, (layer(x + step * dx) - layer(x - step * dx)) / (2 * step), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2, 1)], ids=["positions first", "channels first"])
def test_projections_in_any_layout(order):
    h, k, v = 2, 3, 5
    shape = (4, 35, h * k + v + k)
    tensors = [torch.randn(n, dtype=torch.float64, requires_grad=True) for n in (h * k + v, h * k + v)]
    table = torch.randn(9, k, 1, dtype=torch.float64)
    plain = torch.randn(shape, dtype=torch.float64)
    turned = plain.permute(order).contiguous().permute(order)
    assert not turned.is_contiguous()
    results = []
    for projected in (plain, turned):
        leaf = projected.detach().requires_grad_()
        y = layer_operator(leaf, *tensors, table, None, h, k, 1, 1e-5, *AXES)[0]
        results.append((y, *torch.autograd.grad(y.square().sum(), [leaf, *tensors])))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


def test_norms_without_bias():
    layer = LambdaLayer2d(16, scope=3)
    layer.query_norm = torch.nn.BatchNorm1d(64, bias=False)
    for training in (True, False):
        assert layer.train(training)(torch.randn(2, 16, 5, 7)).isfinite().all()


def test_whoever_listens_is_heard():
    heard = []
    for attach in (
        lambda m: m.register_full_backward_hook(lambda *_: heard.append(1)),
        lambda m: m.register_full_backward_pre_hook(lambda *_: heard.append(1)),
        lambda m: m.register_forward_hook(lambda *_: heard.append(1)),
    ):
        for name in ("query", "query_norm"):
            layer, before = LambdaLayer2d(16, scope=3), len(heard)
            attach(getattr(layer, name))
            layer(torch.randn(2, 16, 5, 7, requires_grad=True)).sum().backward()
            assert len(heard) > before, name
    layer = LambdaLayer2d(16, scope=3)
    layer.query.forward = lambda x: torch.zeros(*x.shape[:-1], 64)
    assert layer(torch.randn(2, 16, 5, 7)).isfinite().all()
    called = []
    layer.query.forward = lambda x: called.append(1) or torch.zeros(*x.shape[:-1], 64)
    layer(torch.randn(2, 16, 5, 7))
    assert called


def test_a_torch_plan_has_second_derivatives_with_batch_norm():
    layer = LambdaLayer2d(8, k=2, scope=3, plan="lambda_first").double()
    x = torch.randn(2, 8, 5, 7, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x)
    assert second.abs().sum() > 0


def test_keys_of_minus_infinity_weigh_nothing():
    h, k, v, n = 1, 2, 3, 30 * 40
    projected = torch.randn(1, n, h * k + v + k)
    projected[:, 100:, -k:] = -torch.inf  # more than one slice of the kernel
    grid = ([30, 40], [30, 40], [1, 1], [1, 1], [1, 1], 1, AUTO)
    y, *_ = layer_operator(projected, None, None, torch.zeros(1, k, 1), None, h, k, 1, 0.0, *grid)
    q, values, keys = projected.split([h * k, v, k], -1)
    expected = q @ (keys.softmax(1).transpose(1, 2) @ values)
    torch.testing.assert_close(y.squeeze(2), expected)
