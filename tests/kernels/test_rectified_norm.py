"""Norm, residual and rectifier in one pass are what torch makes of them in three."""

import copy

import pytest
import torch
import torch.autograd.forward_ad as fwAD  # noqa: N812
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from compare import TOLERANCE, assert_close
from lambdanets import create_model
from lambdanets.kernels import unavailable
from lambdanets.kernels.operators import rectified_norm, rectified_norms, rectify
from lambdanets.nn.rectified import Rectified, norm_then_relu, norms_then_relu

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=f"no kernels: {unavailable()}")
LAST = torch.channels_last


def maps(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype).contiguous(memory_format=LAST)


def norm_of(channels, dtype=torch.float64):
    norm = nn.BatchNorm2d(channels, momentum=0.3)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm.to(dtype)


def with_gradients(function, norm, x, residual, g):
    leaves = [x.detach().requires_grad_(), *([] if residual is None else [residual.detach().requires_grad_()])]
    y = function(norm, *leaves)
    names = ["y", "dx", *([] if residual is None else ["dresidual"]), "dweight", "dbias", "mean", "var"]
    gradients = torch.autograd.grad(y, [*leaves, norm.weight, norm.bias], g)
    return dict(zip(names, [y.detach(), *gradients, norm.running_mean, norm.running_var], strict=True))


def plain(norm, x, residual=0.0):
    return (norm(x) + residual).relu()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("with_residual", [False, True])
@pytest.mark.parametrize("shape", [(2, 7, 5, 3), (1, 33, 11, 13), (3, 1, 1, 1), (1, 5, 1, 2)])
def test_training(shape, with_residual, dtype, threads):
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    x, g = maps(*shape, dtype=dtype), maps(*shape, dtype=dtype)
    residual = maps(*shape, dtype=dtype) if with_residual else None
    norm = norm_of(shape[1], dtype)
    exact = copy.deepcopy(norm).double()
    ours = with_gradients(norm_then_relu, norm, x, residual, g)
    theirs = with_gradients(plain, exact, x.double(), None if residual is None else residual.double(), g.double())
    assert_close(ours, theirs, TOLERANCE[dtype])
    assert norm.num_batches_tracked == 1


@pytest.mark.parametrize("with_residual", [False, True])
def test_eval(with_residual):
    norm = norm_of(7).eval()
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    x, residual = maps(2, 7, 5, 3), maps(2, 7, 5, 3) if with_residual else None
    with torch.no_grad():
        y = norm_then_relu(norm, x, residual)
        torch.testing.assert_close(y, plain(norm, x, 0.0 if residual is None else residual))
    assert y.is_contiguous(memory_format=LAST)


def test_two_norms():
    norms = [norm_of(7).eval() for _ in range(2)]
    for norm in norms:
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    x, other = maps(2, 7, 5, 3), maps(2, 7, 5, 3)
    assert norms_then_relu(norms[0], x, norms[1], other) is None  # torch has the gradients
    with torch.no_grad():
        y = norms_then_relu(norms[0], x, norms[1], other)
        torch.testing.assert_close(y, plain(norms[0], x, norms[1](other)))
        assert norms_then_relu(norms[0], x, norms[1].train(), other) is None


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", [(2, 7, 5, 3), (1, 33, 11, 13), (1, 5, 1, 2)])
def test_two_norms_in_training(shape, dtype):
    torch.manual_seed(0)
    x, other, g = (maps(*shape, dtype=dtype) for _ in range(3))
    other += 100  # far from zero, where sums that are not about a mean lose digits
    norms = [norm_of(shape[1], dtype) for _ in range(2)]
    norms[1].eps = 1e-3

    def run(function, precision):
        its, others = (copy.deepcopy(norm).to(precision) for norm in norms)
        leaves = [t.to(precision).requires_grad_() for t in (x, other)]
        y = function(its, leaves[0], others, leaves[1])
        parameters = [its.weight, its.bias, others.weight, others.bias]
        names = ["dx", "dother", "dweight", "dbias", "dother_weight", "dother_bias"]
        gradients = torch.autograd.grad(y, [*leaves, *parameters], g.to(precision))
        kept = {f"{i}.{name}": b for i, norm in enumerate((its, others)) for name, b in norm.named_buffers()}
        return {"y": y.detach(), **dict(zip(names, gradients, strict=True)), **kept}

    def apart(norm, x, other_norm, other):
        return plain(norm, x, other_norm(other))

    ours = run(norms_then_relu, dtype)
    assert_close(ours, run(apart, torch.float64), TOLERANCE[dtype], naive=run(apart, dtype))
    assert ours["0.num_batches_tracked"] == ours["1.num_batches_tracked"] == 1


def test_gradients_of_two_norms():
    torch.manual_seed(0)
    halves = [(maps(1, 5, 3, 3), *torch.randn(2, 5).double()) for _ in range(2)]
    leaves = [t.requires_grad_() for half in halves for t in half]

    def run(*t):
        return rectified_norms(*t[:3], 1e-5, *t[3:], 1e-3)[0]

    assert torch.autograd.gradcheck(run, leaves)
    assert torch.autograd.gradgradcheck(run, leaves)


def test_gradcheck():
    torch.manual_seed(0)
    leaves = [t.requires_grad_() for t in (maps(1, 5, 3, 3), *torch.randn(2, 5).double(), maps(1, 5, 3, 3))]
    assert torch.autograd.gradcheck(lambda *t: rectified_norm(*t, 1e-5)[0], leaves)


def test_gradients_are_added_in_place():
    """What norm_then_relu gives back is nobody's view: autograd may add the next gradient to it."""
    x, norm, kept = maps(2, 7, 5, 3).requires_grad_(), norm_of(7), []
    x.register_hook(lambda g: kept.append(g._base))
    norm_then_relu(norm, x, maps(2, 7, 5, 3)).sum().backward()
    assert kept == [None]


def test_what_is_not_a_number_stays_so():
    x = maps(2, 3, 5, 5)
    x[0, 1, 2, 2] = torch.nan
    y = norm_then_relu(norm_of(3), x)
    assert y[:, 1].isnan().all()
    assert y[:, [0, 2]].isfinite().all()


def test_left_to_torch():
    norm, x = norm_of(7), maps(2, 7, 5, 3)
    for other in (x.contiguous(), x.float(), x[:0], maps(1, 7, 1, 1)):
        assert norm_then_relu(norm, other) is None
    assert norm_then_relu(norm, x, torch.randn(2, 7, 5, 3, dtype=torch.float64)) is None
    assert norm_then_relu(nn.SyncBatchNorm(7).double(), x) is None
    assert norm_then_relu(nn.BatchNorm2d(7, affine=False).double(), x) is None
    assert norm_then_relu(norm.eval(), x) is None  # frozen, but trained: torch has the gradient for that


@pytest.mark.unchecked
def test_no_norm_but_one_that_fits():
    x = maps(2, 7, 5, 3)
    for norm in (nn.BatchNorm2d(7, bias=False).double(), nn.BatchNorm2d(5).double()):
        assert norm_then_relu(norm, x) is None
    assert norm_then_relu(norm_of(7), x, maps(2, 7, 3, 5)) is None
    with torch.no_grad():
        assert norms_then_relu(norm_of(7).eval(), x, norm_of(7).eval(), maps(2, 7, 3, 5)) is None
    with pytest.raises(ValueError, match="must be"):
        rectify(maps(1, 5, 3, 1), *torch.randn(3, 4), None, None, None)
    with pytest.raises(ValueError, match="residual must be"):
        rectify(maps(1, 5, 3, 1), *torch.randn(3, 5), maps(1, 5, 2, 1), None, None)


@pytest.mark.unchecked
def test_a_residual_has_both_or_neither():
    x = maps(1, 5, 3, 1)
    with pytest.raises(ValueError, match="both a mean and a scale"):
        rectify(x, *torch.randn(3, 5), x, torch.randn(5), None)


def test_statistics_that_lie_apart():
    norm, x = norm_of(7).eval(), maps(2, 7, 5, 3)
    expected = plain(norm, x)
    apart = copy.deepcopy(norm)
    for name in ("running_mean", "running_var", "weight", "bias"):
        held = getattr(norm, name).detach()
        strided = torch.stack([held, torch.full_like(held, 9.0)], 1)[:, 0]
        setattr(apart, name, strided if name.startswith("running") else nn.Parameter(strided))
    with torch.no_grad():
        torch.testing.assert_close(norm_then_relu(apart, x), expected)


@pytest.mark.parametrize("with_residual", [False, True])
def test_second_derivatives(with_residual):
    """Where somebody asks for them, gradients are taken by torch's own norm."""
    torch.manual_seed(0)
    both = [maps(1, 5, 3, 3) for _ in range(1 + with_residual)]
    leaves = [t.requires_grad_() for t in (both[0], *torch.randn(2, 5).double(), *both[1:])]

    def run(x, weight, bias, residual=None):
        return rectified_norm(x, weight, bias, residual, 1e-5)[0]

    assert torch.autograd.gradgradcheck(run, leaves)


def lively(name):
    torch.manual_seed(0)
    model = create_model(name, num_classes=3).eval().to(memory_format=LAST).double().requires_grad_(False)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.2, 0.6)
    return model


both = pytest.mark.parametrize("name", ["resnet14_small", "lambda_resnet14_small"])


@both
def test_forward_mode_is_left_to_torch(name):
    model, x, v = lively(name), maps(2, 3, 8, 8), maps(2, 3, 8, 8)
    with fwAD.dual_level():
        tangent = fwAD.unpack_dual(model(fwAD.make_dual(x, v))).tangent
    step = 1e-6
    torch.testing.assert_close(tangent, (model(x + step * v) - model(x - step * v)) / (2 * step), rtol=1e-4, atol=1e-5)


@both
@pytest.mark.unchecked
@torch.no_grad()
def test_tracers_see_every_operator(name):
    model, x, other = lively(name), maps(2, 3, 8, 8), maps(2, 3, 8, 8)
    torch.testing.assert_close(make_fx(model)(x)(other), model(other))
    torch.testing.assert_close(torch.jit.trace(model, x)(other), model(other))
    with FakeTensorMode(allow_non_fake_inputs=True):
        fake = torch.empty(2, 3, 8, 8, dtype=torch.float64).contiguous(memory_format=LAST)
        assert model(fake).shape == (2, 3)


@pytest.mark.unchecked
def test_convolutional_networks_can_be_traced_symbolically():
    model, x = create_model("resnet14_small", num_classes=3).eval(), torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(torch.fx.symbolic_trace(model)(x), model(x))


def test_whoever_listens_hears():
    heard = []
    model = Rectified(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU()).to(memory_format=LAST)
    for layer in model[1:]:
        layer.register_forward_hook(lambda *_: heard.append(1))
        model(maps(2, 3, 5, 5, dtype=torch.float32))
    assert len(heard) == 3


@pytest.mark.parametrize("changes", [{}, {"setup": "350", "se": True, "drop_path": 0.5}], ids=["plain", "se"])
def test_networks_are_the_same_in_both_formats(changes):
    """Kernels on channels-last maps, torch on the others."""
    torch.manual_seed(0)
    small = dict(blocks=(1, 1, 1, 1), placement="CLCL", image_size=64, num_classes=5)
    model = create_model("lambda_resnet26", **small, **changes).double()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.2, 0.6)
    other = copy.deepcopy(model).to(memory_format=LAST)
    x = maps(2, 3, 64, 64)
    for training in (True, False):
        answers = []
        for each, images in ((model, x.contiguous()), (other, x)):
            torch.manual_seed(0)
            answers.append(each.train(training)(images))
        torch.testing.assert_close(*answers, rtol=1e-9, atol=1e-9)
        with torch.no_grad():
            torch.testing.assert_close(other.eval()(x), model.eval()(x.contiguous()), rtol=1e-9, atol=1e-9)
    for name, statistic in model.named_buffers():
        torch.testing.assert_close(other.get_buffer(name), statistic, rtol=1e-9, atol=1e-9)
