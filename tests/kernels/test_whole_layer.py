"""A layer's work behind its projections is one operator wherever the kernels can do it: the same numbers, less to keep.

That layers equal the oracle is tested with all others in tests/nn; here, that the operator is what they run.
"""

import copy
from inspect import signature

import pytest
import torch

from compare import TOLERANCE, assert_close, randomise
from lambdanets import LambdaLayer1d, LambdaLayer2d, LambdaLayer3d
from lambdanets.kernels import unavailable
from lambdanets.nn import LambdaLayer, lambda_layer
from lambdanets.nn.fused import SERVED, Choice, LayerCall, fused_layer, is_served
from lambdanets.nn.lambda_options import LambdaOptions

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=f"no kernels: {unavailable()}")


@pytest.fixture
def fused(monkeypatch):
    """The calls of layers that went through the operator."""
    calls = []

    def watch(*args, **kwargs):
        calls.append(args)
        return fused_layer(*args, **kwargs)

    monkeypatch.setattr(lambda_layer, "fused_layer", watch)
    return calls


TAKEN = {
    "a map": LambdaLayer2d(32, scope=7),
    "a sequence": LambdaLayer1d(32, scope=7),
    "intra-depth": LambdaLayer2d(32, scope=7, u=3),
    "dilated": LambdaLayer2d(32, scope=7, dilation=2),
    "with a position bias": LambdaLayer2d(32, scope=7, position_bias=True),
    "without norms": LambdaLayer2d(32, scope=7, norm="none"),
    "asked for": LambdaLayer2d(32, scope=7, plan="native"),
}
LEFT = {
    "three axes": LambdaLayer3d(32, scope=3),
    "causal": LambdaLayer1d(32, scope=7, causal=True),
    "strided": LambdaLayer2d(32, scope=7, stride=2),
    "l2": LambdaLayer2d(32, scope=7, key_norm="l2"),
    "rms": LambdaLayer2d(32, scope=7, norm="rms"),
    "content only": LambdaLayer2d(32, terms="content"),
    "position only": LambdaLayer2d(32, scope=7, terms="position"),
    "another plan": LambdaLayer2d(32, scope=7, plan="query_first"),
}


def a_map_for(layer):
    return torch.randn(2, 32, *(45, 9, 13)[: layer.dims])


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layer", TAKEN.values(), ids=TAKEN)
def test_is_taken(layer, training, fused):
    layer.train(training)(a_map_for(layer))
    assert len(fused) == 1


@pytest.mark.parametrize("layer", LEFT.values(), ids=LEFT)
def test_is_left(layer, fused):
    layer(a_map_for(layer))
    assert not fused


def test_is_left_for_masks_half_precision_and_hooks(fused):
    layer = LambdaLayer2d(32, scope=7)
    x = a_map_for(layer)
    layer(x, mask=torch.rand(2, 1, 45 * 9) > 0.5)
    with torch.autocast("cpu", torch.bfloat16):
        layer(x)
    layer.query.register_forward_hook(lambda *_: None)
    layer(x)
    assert not fused


def arguments(function):
    return {name for name in signature(function).parameters if name not in ("self", "x")}


def test_every_option_is_accounted_for():
    """An option of the layer that the operator does not know would be ignored: it must be entered in SERVED."""
    assert arguments(LambdaLayer.__init__) | arguments(LambdaLayer.forward) == SERVED.keys()
    assert {*LambdaOptions._fields} == arguments(LambdaLayer.__init__) - {"table", "table_std"}
    assert arguments(LambdaLayer.forward) <= {*LayerCall._fields}


OTHERWISE = {
    "scope": None,
    "stride": (1, 2),
    "terms": "position",
    "key_norm": "none",
    "norm": "rms",
    "causal": "strict",
    "relations": 3,
    "context": True,
    "mask": True,
    "relation": True,
}


def test_every_option_that_is_not_served_is_refused():
    layer = LambdaLayer2d(32, scope=7)
    call = LayerCall(layer.options, False, False, False, 2, (9, 13), False, torch.device("cpu"), torch.float32, None)
    assert is_served(call)
    assert not is_served(call._replace(no_kernels="for this test"))
    assert OTHERWISE.keys() == {name for name, test in SERVED.items() if test is not None}
    for name, value in OTHERWISE.items():
        changed = {name: value} if name in LayerCall._fields else {"options": call.options._replace(**{name: value})}
        assert not is_served(call._replace(**changed)), name


def test_what_is_changed_after_construction_counts(fused):
    layer = LambdaLayer2d(32, scope=7)
    x = a_map_for(layer)
    layer(x)
    layer.plan = "query_first"
    layer(x)
    assert len(fused) == 1
    layer.plan, layer.key_norm = None, "l2"
    layer(x)
    assert len(fused) == 1


def results(layer, x, g):
    x = x.detach().requires_grad_()
    gradients = torch.autograd.grad(layer(x), [x, *layer.parameters()], g, retain_graph=False)
    names = ["x", *dict(layer.named_parameters())]
    return {"y": layer(x).detach(), **dict(zip(names, gradients, strict=True)), **dict(layer.named_buffers())}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layer", TAKEN.values(), ids=TAKEN)
def test_is_the_longer_way(layer, training, monkeypatch):
    layer.double().train(training)
    torch.nn.init.normal_(layer.value.weight, std=0.3)
    x, g = (torch.randn_like(a_map_for(layer), dtype=torch.float64) for _ in range(2))
    state = {name: value.clone() for name, value in layer.state_dict().items()}
    short = results(layer, x, g)
    layer.load_state_dict(state)
    monkeypatch.setattr(lambda_layer, "choose_for", lambda call: Choice())
    assert_close(short, results(layer, x, g), TOLERANCE[torch.float64])


def test_keys_of_any_size():
    layer = LambdaLayer2d(32, scope=7).double()
    single = LambdaLayer2d(32, scope=7)
    single.load_state_dict(layer.state_dict())
    x, g = torch.randn(2, 32, 5, 9), torch.randn(2, 32, 5, 9)
    for size in (1e-3, 30.0, 3e3):
        with torch.no_grad():
            layer.key.weight.normal_(std=size)
            single.key.weight.copy_(layer.key.weight)
            layer.key.weight.copy_(single.key.weight)
        # Large keys round too: what their gradients can be compared with is the output.
        assert_close({"y": single(x).detach()}, {"y": layer(x.double()).detach()}, max(1e-5, size * 1e-6))
        assert all(t.isfinite().all() for t in results(single, x, g).values())


def test_keeps_the_input_and_its_projections():
    layer = LambdaLayer2d(64)
    x = torch.randn(2, 64, 28, 28).to(memory_format=torch.channels_last).requires_grad_()
    kept = {}

    def keep(t):
        kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes() // t.element_size()
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        layer(x)
    positions = 2 * 28 * 28
    large = sorted(n for n in kept.values() if n >= positions * 16)
    assert large == [positions * 64, positions * (4 * 16 + 16 + 16)]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", [*TAKEN, *LEFT])
def test_inference_is_what_eval_mode_with_gradients_gives(name, dtype):
    """Without gradients the kernels apply running statistics to what they read; with them, those are in the weights."""
    layer = copy.deepcopy({**TAKEN, **LEFT}[name]).to(dtype).eval()
    randomise(layer)
    x = torch.randn(2, 32, *(11, 7, 5)[: layer.dims], dtype=dtype)
    with torch.no_grad():
        inferred = layer(x)
    assert_close({"y": inferred}, {"y": layer.double()(x.double()).detach()}, TOLERANCE[dtype])
