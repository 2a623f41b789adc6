"""Every layer of the registry goes through the same things that users do with layers."""

import copy
import io
import os
import pickle
import shutil

import pytest
import torch

import lambdanets.nn
from cases import CASES, CLASSES, IDS, OUT, LayerCase
from compare import error
from lambdanets import LambdaLayer2d, LambdaMixer

COMPILER = any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++")))
every_case = pytest.mark.parametrize("case", CASES, ids=IDS)


def test_the_registry_has_every_layer():
    modules = {getattr(lambdanets.nn, name) for name in lambdanets.nn.__all__}
    layers = {m for m in modules if isinstance(m, type) and issubclass(m, lambdanets.nn.LambdaLayer)}
    assert layers - {lambdanets.nn.LambdaLayer} == set(CLASSES)


@every_case
def test_forward_and_backward(case):
    layer, (x, options) = case.build(), case.inputs()
    x.requires_grad_()
    y = layer(x, **options)
    y.square().mean().backward()
    stride = case.arguments.get("stride", 1)
    grid = tuple(len(range(0, g, stride)) for g in case.grid)
    assert y.shape == ((3, *grid, OUT) if case.layer is LambdaMixer else (3, OUT, *grid))
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


@every_case
def test_deepcopy_pickle_and_state_dict(case):
    layer, (x, options) = case.build(), case.inputs()
    layer(x, **options)  # batch statistics have moved
    expected = layer.eval()(x, **options)
    again = case.layer(**case.arguments).eval()
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    assert again.load_state_dict(torch.load(file, weights_only=True)).missing_keys == []
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), again):
        assert torch.equal(other(x, **options), expected)


@every_case
def test_layouts_of_the_input_do_not_matter(case):
    layer, (x, options) = case.build().eval(), case.inputs()
    expected = layer(x, **options)
    transposed = x.transpose(-1, -2).contiguous().transpose(-1, -2)
    spaced = torch.stack([x, x], -1)[..., 0]
    reversed_batch = x.flip(0).contiguous().flip(0)
    for other in (transposed, spaced, reversed_batch):
        assert error(layer(other, **options), expected) < 1e-6


@every_case
def test_channels_last_in_is_channels_last_out(case):
    layer, (x, options) = case.build().eval(), case.inputs()
    memory_format = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.ndim)
    if memory_format is None:  # torch has the format for maps of 2 and 3 axes only
        assert layer(x, **options).is_contiguous()
        return
    expected = layer(x, **options)
    assert expected.is_contiguous()
    y = layer.to(memory_format=memory_format)(x.to(memory_format=memory_format), **options)
    assert y.is_contiguous(memory_format=memory_format)
    assert error(y, expected) < 1e-6


@every_case
def test_one_example_equals_its_row_of_a_batch(case):
    layer, (x, options) = case.build().eval(), case.inputs()
    expected = layer(x, **options)[1:2]
    one = {name: o[1:2] if len(o) == len(x) else o for name, o in options.items()}
    assert error(layer(x[1:2], **one), expected) < 1e-6


@every_case
def test_empty_batch(case):
    layer, (x, options) = case.build(), case.inputs()
    before = copy.deepcopy(layer.state_dict())
    none = {name: o[:0] if len(o) == len(x) else o for name, o in options.items()}
    x = x[:0].requires_grad_()
    y = layer(x, **none)
    y.sum().backward()
    assert y.shape[0] == 0
    assert x.grad.shape == x.shape
    for name, value in layer.state_dict().items():
        assert torch.equal(value, before[name]), name


@every_case
def test_builds_and_runs_on_the_meta_device(case):
    x, options = case.inputs()
    expected = case.build()(x, **options).shape
    with torch.device("meta"):
        layer = case.layer(**case.arguments)
    y = layer(x.to("meta"), **{name: o.to("meta") for name, o in options.items()})
    assert y.device.type == "meta"
    assert y.shape == expected


@every_case
def test_float64_and_half(case):
    layer, (x, options) = case.build().eval(), case.inputs()
    exact = layer.double()(x.double(), **cast(options, torch.float64))
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 0.02), (torch.bfloat16, 0.1)):
        y = case.build().eval().to(dtype)(x.to(dtype), **cast(options, dtype))
        assert y.dtype == dtype
        assert ((y.double() - exact).abs().max() / exact.abs().max()).item() < tolerance


def cast(options, dtype):
    return {name: o.to(dtype) if o.is_floating_point() else o for name, o in options.items()}


@pytest.mark.unchecked
@every_case
def test_compiles_without_a_break(case):
    torch._dynamo.reset()
    layer, (x, options) = case.build(), case.inputs()
    expected = run(copy.deepcopy(layer), x, options)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    compare(run(compiled, x, options), expected)


@pytest.mark.unchecked
def test_one_compiled_graph_serves_many_sizes():
    torch._dynamo.reset()
    layer = LambdaLayer2d(13, scope=5, h=1).eval()
    graphs = []

    def counting(graph, _):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(layer, backend=counting, fullgraph=True, dynamic=True)
    for height, width in ((31, 37), (41, 43), (47, 53), (59, 61)):
        x = torch.randn(2, 13, height, width)
        assert error(compiled(x), layer(x)) < 1e-6
    assert len(graphs) == 1


@pytest.mark.unchecked
@pytest.mark.parametrize("key_norm", ["softmax", "l2", "none"])
@pytest.mark.parametrize("causal", [True, "strict"])
def test_one_compiled_graph_serves_many_lengths(causal, key_norm):
    """The number of causal chunks is a symbol too, from two on; outputs and gradients, with full and other chunks."""
    torch._dynamo.reset()
    layer = LambdaMixer(13, h=1, k=5, u=2, scope=5, norm="rms", causal=causal, key_norm=key_norm).double()
    graphs = []

    def counting(graph, _):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(layer, backend=counting, fullgraph=True, dynamic=True)
    for n in (32, 33, 63, 64, 100, 131):
        x = 3 * torch.randn(2, n, 13, dtype=torch.float64)
        compare(run(compiled, x, {}), run(layer, x, {}))
    assert len(graphs) == 1


@pytest.mark.unchecked
@pytest.mark.skipif(not COMPILER, reason="inductor needs a C++ compiler, and this machine has none")
@pytest.mark.parametrize("layer", CLASSES, ids=lambda c: c.__name__)
def test_compiles_with_inductor(layer):
    torch._dynamo.reset()
    case = LayerCase(layer, "causal" if layer is LambdaMixer else "local")
    module, (x, options) = case.build(), case.inputs()
    expected = run(copy.deepcopy(module), x, options)
    compare(run(torch.compile(module, fullgraph=True), x, options), expected)


def run(layer, x, options):
    """Output and gradients."""
    x = x.clone().requires_grad_()
    y = layer(x, **options)
    gradients = torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])
    return [y, *gradients]


def compare(ours, expected):
    for a, b in zip(ours, expected, strict=True):
        assert error(a, b) < 1e-5


@pytest.mark.unchecked
@every_case
def test_exports_with_dynamic_batch_and_sizes(case):
    layer, (x, options) = case.build().eval(), case.inputs()
    batch = torch.export.Dim("b", min=2, max=64)
    least = 1 + case.arguments.get("stride", 1)  # export fixes sizes that can be 1
    # A mask or a relation of a map of several axes has as many positions as their product, which no Dim can say.
    resizable = len(case.grid) == 1 or options.keys() <= {"context"}

    def sizes(letter, most):
        return [torch.export.Dim(f"{letter}{i}", min=least, max=most[i]) for i in range(len(case.grid))]

    most = case.arguments["size"] if case.variant == "global" else [64] * len(case.grid)
    n = sizes("n", most) if resizable else [None] * len(case.grid)
    m = sizes("m", most) if resizable and "context" in options else n
    first = 1 if case.layer is LambdaMixer else 2

    def of_map(grid):
        return {0: batch} | {first + i: size for i, size in enumerate(grid) if size is not None}

    shapes = {"x": of_map(n), "context": of_map(m)}
    shapes["mask"] = {0: batch, 2: m[0]} if case.forward["mask"] == "rows" else {0: batch, 1: n[0], 2: m[0]}
    shapes["relation"] = {0: n[0], 1: m[0]}
    shapes = {
        name: {axis: dim for axis, dim in dims.items() if dim is not None}
        for name, dims in shapes.items()
        if name == "x" or name in options
    }
    # torch cannot prove its own guards about a size that is divided by a stride; it can check them when it runs.
    later = case.variant == "strided"
    program = torch.export.export(
        layer, (x,), options, dynamic_shapes=shapes, prefer_deferred_runtime_asserts_over_guards=later
    )
    exported = program.module()
    assert error(exported(x, **options), layer(x, **options)) < 1e-6
    other = LayerCase(case.layer, case.variant)
    if resizable:
        other.grid = tuple(s if s == 3 else s - 1 for s in case.grid)
    x, options = other.inputs(b=5)
    assert error(exported(x, **options), layer(x, **options)) < 1e-6
