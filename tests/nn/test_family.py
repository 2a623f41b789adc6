"""Every layer of the attention family equals its oracle and does what users do with layers."""

import copy
import io
import math
import os
import shutil
from dataclasses import replace

import pytest
import torch

from compare import SWEEP, TOLERANCE, assert_close, error, layer_with_gradients, randomise, with_gradients
from families import CASES
from lambdanets.nn import LambdaLayer
from lambdanets.nn.attention.axial import Axial2d
from lambdanets.nn.attention.local import Local
from lambdanets.nn.attention.relation import Relation2d
from lambdanets.nn.attention.vector import Vector2d
from lambdanets.nn.registry import LAYERS

COMPILER = any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++")))

every_case = pytest.mark.parametrize("case", CASES, ids=map(str, CASES))
# Tracing takes seconds, so `make test` traces each way through a layer once.
TRACED = CASES if SWEEP else list({case.path: case for case in reversed(CASES)}.values())
every_path = pytest.mark.parametrize("case", TRACED, ids=map(str, TRACED))


def test_the_cases_have_every_layer():
    """Lambda layers have cases of their own, in tests/cases.py."""
    registered = {made for row in LAYERS.values() for made in (row.maps, row.tokens) if made is not None}
    assert {made for made in registered if not issubclass(made, LambdaLayer)} == {case.layer for case in CASES}


def oracle_with_gradients(case, layer, x, options, dtype=torch.float64):
    context, mask = options.get("context"), options.get("mask")
    inputs = {"x": x} if context is None else {"x": x, "context": context}
    tensors = {name: t.to(dtype) for name, t in (inputs | dict(layer.named_parameters())).items()}
    buffers = {name: t.to(dtype) if t.is_floating_point() else t for name, t in layer.named_buffers()}
    return with_gradients(lambda leaves: case.expected(leaves, leaves.get("context"), mask, buffers | leaves), tensors)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@every_case
def test_equals_its_oracle(case, dtype):
    layer, (x, options) = case.build(dtype).eval(), case.inputs(dtype=dtype)
    randomise(layer)
    context, others = options.get("context"), {name: o for name, o in options.items() if name != "context"}
    ours = layer_with_gradients(layer, x, context, **others)
    naive = oracle_with_gradients(case, layer, x, options, dtype)
    assert_close(ours, oracle_with_gradients(case, layer, x, options), TOLERANCE[dtype], naive)


@every_case
def test_forward_and_backward(case):
    layer, (x, options) = case.build(), case.inputs()
    y = layer(x.requires_grad_(), **options)
    assert y.shape == ((2, *case.grid, case.out) if case.is_on_tokens else (2, case.out, *case.grid))
    y.square().mean().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("case", [case for case in CASES if case.mask is not None], ids=str)
def test_what_nobody_may_use_reaches_nothing(case):
    layer, (x, options) = case.build().eval(), case.inputs()
    options["mask"] = options["mask"].clone()
    options["mask"][:, :, 2] = False
    name = "x" if case.context_grid is None else "context"
    inputs = {"x": x, **options}
    spoilt = case.flat(inputs[name]).clone()
    spoilt[:, 2] = torch.nan
    shape = inputs[name].shape
    spoilt = spoilt if case.is_on_tokens else spoilt.transpose(1, 2).reshape(shape)
    expected, ours = (
        with_gradients(
            lambda leaves, inputs=its: torch.func.functional_call(layer, leaves, (inputs["x"],), rest(inputs)),
            dict(layer.named_parameters()),
        )
        for its in (inputs, {**inputs, name: spoilt})
    )
    others = [n for n in range(math.prod(case.grid)) if case.context_grid is not None or n != 2]
    assert torch.equal(case.flat(ours["output"])[:, others], case.flat(expected["output"])[:, others])
    assert all(gradient.isfinite().all() for gradient in ours.values())


def rest(inputs):
    return {name: value for name, value in inputs.items() if name != "x"}


@every_case
def test_copies_and_saved_weights(case):
    layer, (x, options) = case.build(), case.inputs()
    layer(x, **options)  # statistics, if any, have moved
    expected = layer.eval()(x, **options)
    again, file = case.build().eval(), io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    again.load_state_dict(torch.load(file, weights_only=True))
    for other in (copy.deepcopy(layer), again):
        assert torch.equal(other(x, **options), expected)


@every_case
def test_layouts_do_not_matter(case):
    layer, (x, options) = case.build().eval(), case.inputs()
    expected = layer(x, **options)
    assert expected.is_contiguous()
    transposed = x.transpose(-1, -2).contiguous().transpose(-1, -2)
    spaced = torch.stack([x, x], -1)[..., 0]
    for other in (transposed, spaced):
        assert error(layer(other, **options), expected) < 1e-6
    if x.ndim == 4:
        y = layer(x.contiguous(memory_format=torch.channels_last), **options)
        assert y.is_contiguous(memory_format=torch.channels_last)
        assert error(y, expected) < 1e-6


@every_case
def test_one_example_and_none(case):
    layer, (x, options) = case.build().eval(), case.inputs()
    expected = layer(x, **options)
    assert error(layer(x[1:], **{name: o[1:] for name, o in options.items()}), expected[1:]) < 1e-6
    none = layer(x[:0], **{name: o[:0] for name, o in options.items()})
    assert none.shape == (0, *expected.shape[1:])


@every_case
def test_dtypes(case):
    layer, (x, options) = case.build().eval(), case.inputs()
    exact = layer.double()(*casted(x, options, torch.float64)[0], **casted(x, options, torch.float64)[1])
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 0.02), (torch.bfloat16, 0.1)):
        (x_,), options_ = casted(x, options, dtype)
        y = case.build(dtype).eval()(x_, **options_)
        assert y.dtype == dtype
        assert ((y.double() - exact).abs().max() / exact.abs().max()).item() < tolerance


def casted(x, options, dtype):
    return (x.to(dtype),), {name: o.to(dtype) if o.is_floating_point() else o for name, o in options.items()}


@every_case
def test_meta_device(case):
    x, options = case.inputs()
    with torch.device("meta"):
        layer = case.build()
    y = layer(x.to("meta"), **{name: o.to("meta") for name, o in options.items()})
    assert y.device.type == "meta"


@pytest.mark.unchecked
@every_path
def test_compiles_without_a_break(case):
    torch._dynamo.reset()
    layer, (x, options) = case.build(), case.inputs()
    expected = outputs(copy.deepcopy(layer), x, options)
    ours = outputs(torch.compile(layer, backend="aot_eager", fullgraph=True), x, options)
    for a, b in zip(ours, expected, strict=True):
        assert error(a, b) < 1e-5


def outputs(layer, x, options):
    x = x.clone().requires_grad_()
    y = layer(x, **options)
    return [y, *torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])]


@pytest.mark.unchecked
@pytest.mark.skipif(not COMPILER, reason="inductor needs a C++ compiler, and this machine has none")
@pytest.mark.parametrize("name", ["Attention2d-relative", "LinearMixer-causal padding"])
def test_compiles_with_inductor(name):
    torch._dynamo.reset()
    case = next(case for case in CASES if str(case) == name)
    layer, (x, options) = case.build(), case.inputs()
    expected = outputs(copy.deepcopy(layer), x, options)
    for a, b in zip(outputs(torch.compile(layer, fullgraph=True), x, options), expected, strict=True):
        assert error(a, b) < 1e-5


@pytest.mark.unchecked
@every_path
def test_exports_with_any_batch(case):
    layer, (x, options) = case.build().eval(), case.inputs()
    batch = torch.export.Dim("b", min=2, max=64)
    shapes = {"x": {0: batch}, **{name: {0: batch} for name in options}}
    program = torch.export.export(layer, (x,), options, dynamic_shapes=shapes)
    x, options = case.inputs(b=3)
    assert error(program.module()(x, **options), layer(x, **options)) < 1e-6


# Those that were told no size. Lines and windows of a map are left out: torch cannot prove its own guards about their
# sizes, or takes minutes. No Dim can say that a mask of a map has as many positions as the product of its sides.
RESIZABLE = [
    case
    for case in TRACED
    if "size" not in case.arguments
    and not issubclass(case.layer, (Axial2d, Local, Relation2d, Vector2d))
    and (case.is_on_tokens or case.mask is None)
]


@pytest.mark.unchecked
@pytest.mark.parametrize("case", RESIZABLE, ids=str)
def test_exports_with_any_size(case):
    layer, (x, options) = case.build().eval(), case.inputs()
    first = 1 if case.is_on_tokens else 2

    def sizes(letter, grid):
        return {first + axis: torch.export.Dim(f"{letter}{axis}", min=2, max=64) for axis in range(len(grid))}

    n = sizes("n", case.grid)
    m = n if case.context_grid is None else sizes("m", case.context_grid)
    pairs = {1: n[first]} if case.mask == "pairs" else {}
    shapes = {"x": n, "context": m, "mask": {**pairs, 2: m[first]}}
    shapes = {name: shapes[name] for name in ("x", *options)}
    program = torch.export.export(layer, (x,), options, dynamic_shapes=shapes)
    context_grid = None if case.context_grid is None else tuple(side + 2 for side in case.context_grid)
    x, options = replace(case, grid=tuple(side - 1 for side in case.grid), context_grid=context_grid).inputs()
    assert error(program.module()(x, **options), layer(x, **options)) < 1e-6
