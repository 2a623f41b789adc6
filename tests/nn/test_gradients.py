"""Numerical gradients in float64, for gradients that arrive in every layout.

Every entry of the Jacobian for the default layers on lines and maps, random projections of it for the others; `make
sweep` checks every entry of all."""

import pytest
import torch
from torch import nn
from torch.autograd.gradcheck import GradcheckError, gradcheck

from cases import CLASSES, VARIANTS, LayerCase
from compare import SWEEP, randomise

SMALL = {1: (5,), 2: (2, 3), 3: (2, 2, 3)}


class Small(LayerCase):
    """A case of the registry on the smallest grid that has something to see."""

    def first_grid(self):
        return SMALL[self.layer.dims]

    def map(self, b, d, grid):
        return super().map(b, min(d, 3), grid).double()

    def build(self):
        self.arguments |= {"d_in": 3, "d_out": 4, "k": 2}
        if self.forward["context"]:
            self.arguments["d_context"] = 3
        layer = super().build().double()
        randomise(layer)
        return layer


def transposed(y):
    return y.transpose(1, -1)


def expanded(y):
    return y.sum(dim=(0, 1), keepdim=True)


def channels_last(y):
    return y.movedim(1, -1).contiguous()


ARRIVALS = [transposed, expanded, channels_last]


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("b", [1, 2])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("layer", CLASSES, ids=lambda c: c.__name__)
def test_gradcheck(layer, variant, b, training):
    """gradcheck goes back from each output alone, so that every arrival is seen by itself."""
    case = Small(layer, variant)
    module, (x, options) = case.build().train(training), case.inputs(b)
    context = options.pop("context", None)
    names = [name for name, _ in module.named_parameters()]

    def run(x, context, *weights):
        named = dict(zip(names, weights, strict=True))
        y = torch.func.functional_call(module, named, (x, context), options)
        return tuple(arrival(y) for arrival in ARRIVALS)

    leaves = [None if t is None else t.requires_grad_() for t in (x, context)]
    every_entry = SWEEP or (variant == "local" and layer.dims < 3)
    assert gradcheck(run, (*leaves, *module.parameters()), fast_mode=not every_entry)


@pytest.mark.parametrize("arrival", ARRIVALS)
@pytest.mark.parametrize("layer", CLASSES, ids=lambda c: c.__name__)
def test_gradients_arrive_as_they_are_said_to(layer, arrival):
    case = Small(layer, "local")
    module, (x, _) = case.build(), case.inputs(2)
    y = module(x)
    arrived = []
    y.register_hook(arrived.append)
    seen = arrival(y)
    torch.autograd.backward(seen, torch.randn(seen.shape, dtype=seen.dtype))
    assert not arrived[0].is_contiguous()
    assert (0 in arrived[0].stride()) == (arrival is expanded)


def test_the_fault_of_torch_that_the_layers_stay_clear_of():
    """On maps, a single example and a transposed gradient, torch 2.13's batch norm is wrong: when this test fails,
    torch is fixed and `normalise` need not reshape to rows for it."""
    norm = nn.BatchNorm2d(2, affine=False).double().eval()
    x = torch.randn(1, 2, 2, 2, dtype=torch.float64, requires_grad=True)
    with pytest.raises(GradcheckError):
        gradcheck(lambda x: norm(x).flatten(2).transpose(1, 2), (x,))


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("layer", CLASSES, ids=lambda c: c.__name__)
def test_one_example_and_a_transposed_gradient(layer, training):
    """The regression test for that fault: the slow, complete gradcheck of the default layer at b = 1."""
    case = Small(layer, "local")
    module, (x, _) = case.build().train(training), case.inputs(1)
    x.requires_grad_()
    assert gradcheck(lambda x: module(x).flatten(2).transpose(1, 2), (x,))
    transposed_gradient = torch.randn_like(module(x).transpose(1, -1)).transpose(1, -1)
    ours = torch.autograd.grad(module(x), x, transposed_gradient)[0]
    assert torch.allclose(ours, torch.autograd.grad(module(x), x, transposed_gradient.contiguous())[0])
