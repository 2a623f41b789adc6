"""What a layer keeps between calls, to start the next one sooner, never shows in its answers."""

import copy
import sys
import threading

import pytest
import torch

from compare import TOLERANCE, assert_close, randomise
from lambdanets import LambdaLayer2d
from lambdanets.kernels import unavailable
from lambdanets.nn import lambda_layer
from lambdanets.nn.fused import Choice, choose_for

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=f"no kernels: {unavailable()}")


def apart(layer, x):
    """The answer of a copy that takes the longer way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lambda_layer, "choose_for", lambda call: Choice())
        return copy.deepcopy(layer)(x)


CHANGES = {
    "weights in place": lambda layer: layer.query.weight.mul_(1.5),
    "weights behind autograd's back": lambda layer: layer.value.weight.data.mul_(0.5),
    "a new parameter": lambda layer: setattr(layer.key, "weight", torch.nn.Parameter(layer.key.weight * 2)),
    "running statistics": lambda layer: layer.query_norm.running_var.data.mul_(3.0),
    "the table": lambda layer: layer.table.weight.add_(1.0),
    "the table's size": lambda layer: layer.resize((9, 13)),
    "a larger table": lambda layer: layer.resize((17, 16)),
    "training mode": lambda layer: layer.train(),
    "one norm": lambda layer: layer.query_norm.train(),
    "an option": lambda layer: setattr(layer, "key_norm", "l2"),
    "the plan": lambda layer: setattr(layer, "plan", "native_fft"),
    "the dtype": lambda layer: layer.double(),
    "eps": lambda layer: setattr(layer.value_norm, "eps", 0.3),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_changes_between_calls_counts(change):
    layer = LambdaLayer2d(24, k=5, h=3, scope=None, size=(11, 16)).eval()
    randomise(layer)
    x = torch.randn(2, 24, 9, 13)
    with torch.no_grad():
        before = layer(x)
        change(layer)
        x = x.to(layer.query.weight.dtype)
        expected = apart(layer, x)
        after = layer(x)
    assert_close({"y": after}, {"y": expected}, TOLERANCE[x.dtype])
    assert before.dtype != after.dtype or not torch.equal(before, after) or layer.table.size == (9, 13)


def test_all_shapes_and_modes_in_any_order():
    layer = LambdaLayer2d(24, k=5, h=3, scope=7).eval()
    randomise(layer)
    for b, size, grad in [(2, (9, 13), False), (2, (9, 13), True), (3, (5, 4), True), (1, (9, 13), False)] * 2:
        x = torch.randn(b, 24, *size)
        with torch.set_grad_enabled(grad):
            y = layer(x)
        assert y.requires_grad == grad
        assert_close({"y": y.detach()}, {"y": apart(layer, x).detach()}, TOLERANCE[torch.float32])


def test_threads_do_not_meet():
    """Problems of the same shapes are described once: every call has a copy of its own."""
    layers = [LambdaLayer2d(24, k=5, h=3, scope=7).eval() for _ in range(4)]
    inputs = [torch.randn(2, 24, 9, 13) for _ in layers]
    for layer in layers:
        randomise(layer)
    with torch.no_grad():
        expected = [layer(x) for layer, x in zip(layers, inputs, strict=True)]
    wrong = []

    def work(layer, x, y):
        with torch.no_grad():
            wrong.extend(1 for _ in range(200) if not torch.equal(layer(x), y))

    threads = [threading.Thread(target=work, args=each) for each in zip(layers, inputs, expected, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_pickled_or_copied_layer_keeps_nothing_of_its_calls():
    layer = LambdaLayer2d(24, scope=7).eval()
    attributes = set(vars(layer))
    with torch.no_grad():
        layer(torch.randn(1, 24, 5, 7))
    assert set(vars(layer)) == attributes


@pytest.mark.unchecked
def test_a_small_forward_takes_few_python_calls():
    """A count instead of a time: the calls around the kernels are what small maps feel."""
    layer, x = LambdaLayer2d(64).eval(), torch.randn(1, 64, 7, 7)
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"

    with torch.no_grad():
        layer(x)
        previous = sys.getprofile()
        sys.setprofile(count)
        try:
            layer(x)
        finally:
            sys.setprofile(previous)
    assert calls <= 120


def test_equal_calls_are_chosen_for_once():
    layer, calls = LambdaLayer2d(24, scope=7), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lambda_layer, "choose_for", lambda call: calls.append(call) or choose_for(call))
        for _ in range(2):
            layer(torch.randn(2, 24, 5, 7))
    assert calls[0] == calls[1]
    assert choose_for(calls[0]) is choose_for(calls[1])
