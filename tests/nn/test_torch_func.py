"""Gradients by `torch.func`, example by example too, are those of plain autograd."""

import pytest
import torch
from torch.func import functional_call, grad, jacrev, replace_all_batch_norm_modules_, vmap

from cases import CASES as LAMBDA_CASES
from compare import assert_close, randomise
from families import CASES as FAMILY_CASES
from lambdanets import LambdaLayer2d, create_model

CASES = [*LAMBDA_CASES, *FAMILY_CASES]
every_case = pytest.mark.parametrize("case", CASES, ids=map(str, CASES))
# torch's attention on CPUs has no batching rule, and is called once for each example.
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")


def prepare(case):
    """A layer in eval mode with random weights, what differs between examples, and what they share; in float64."""
    layer, (x, options) = case.build().eval(), case.inputs()
    randomise(layer)
    inputs = {name: t.double() if t.is_floating_point() else t for name, t in {"x": x, **options}.items()}
    shared = {name: t for name, t in inputs.items() if len(t) != len(x)}
    return layer.double(), {name: t for name, t in inputs.items() if name not in shared}, shared


def gradients(module, shared):
    """Of the parameters, as a function of these and of one example."""
    buffers = dict(module.named_buffers())

    def loss(parameters, example):
        batch = {name: t[None] for name, t in example.items()}
        return functional_call(module, (parameters, buffers), kwargs={**batch, **shared}).pow(2).sum()

    return grad(loss), {name: p.detach() for name, p in module.named_parameters()}


def one_by_one(module, inputs, shared):
    """Gradients of the parameters for every example, by plain autograd."""
    found = []
    for i in range(len(inputs["x"])):
        y = module(**{name: t[i : i + 1] for name, t in inputs.items()}, **shared)
        leaves = list(module.parameters())
        each = torch.autograd.grad(y.pow(2).sum(), leaves, allow_unused=True)
        found.append([torch.zeros_like(p) if g is None else g for p, g in zip(leaves, each, strict=True)])
    names = [name for name, _ in module.named_parameters()]
    return {name: torch.stack(each) for name, each in zip(names, zip(*found, strict=True), strict=True)}


def check(module, inputs, shared):
    expected = one_by_one(module, inputs, shared)
    of_one, parameters = gradients(module, shared)
    assert_close(vmap(of_one, (None, 0))(parameters, inputs), expected, 1e-10)
    first = of_one(parameters, {name: t[0] for name, t in inputs.items()})
    assert_close(first, {name: g[0] for name, g in expected.items()}, 1e-10)


@every_case
def test_gradients_of_one_example_and_of_each(case):
    check(*prepare(case))


@every_case
def test_jacobians(case):
    """A random combination of a Jacobian's rows is what plain autograd makes of the same combination of outputs."""
    layer, inputs, shared = prepare(case)
    x = inputs.pop("x")[:1].nan_to_num()  # those of NaN are undefined
    options = {name: t[:1] for name, t in inputs.items()} | shared
    jacobian = jacrev(lambda x: layer(x, **options))(x)
    leaf = x.clone().requires_grad_()
    y = layer(leaf, **options)
    weights = torch.randn_like(y)
    (expected,) = torch.autograd.grad(y, leaf, weights)
    assert_close({"x": torch.tensordot(weights, jacobian, y.ndim)}, {"x": expected}, 1e-10)


@pytest.mark.parametrize("name", ["lambda_resnet14_small", "resnet14_small", "vit_tiny_small", "lambda_vit_tiny_small"])
def test_networks(name):
    torch.manual_seed(0)
    model = create_model(name, num_classes=3, image_size=8).double().eval()
    check(model, {"x": torch.randn(2, 3, 8, 8, dtype=torch.float64)}, {})


def test_checkpointed_blocks():
    model = create_model("vit_micro_small", num_classes=3, image_size=8).double().train()
    model.set_grad_checkpointing()
    check(model, {"x": torch.randn(2, 3, 8, 8, dtype=torch.float64)}, {})


@pytest.mark.parametrize("mask", [None, torch.arange(35) % 5 != 2], ids=["all", "padding"])
def test_training_needs_batch_norms_without_running_statistics(mask):
    """As torch's own do: vmap cannot change buffers that the examples share."""
    layer = LambdaLayer2d(6, k=3, h=2, scope=3).double().train()
    inputs = {"x": torch.randn(3, 6, 5, 7, dtype=torch.float64)}
    inputs |= {} if mask is None else {"mask": mask.expand(3, 1, 35)}
    of_each, parameters = gradients(layer, {})
    with pytest.raises(RuntimeError, match="in-place operation"):
        vmap(of_each, (None, 0))(parameters, inputs)
    check(replace_all_batch_norm_modules_(layer), inputs, {})


def test_relations_of_each_example():
    layer = LambdaLayer2d(6, k=3, h=2, relations=5, norm="rms").double()
    x, relation = torch.randn(3, 6, 5, 7, dtype=torch.float64), torch.randint(5, (3, 35, 35))
    check(layer, {"x": x, "relation": relation}, {})
