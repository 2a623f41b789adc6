"""`create_layer` refuses what it does not know in words, and no layer trips over a map without positions."""

import pytest
import torch

from lambdanets import create_layer, list_layers
from lambdanets.nn.attention import Augmented2d
from lambdanets.nn.registry import layer_class

D, SIDE = 32, 7
EMPTY = [
    *((name, "maps", shape) for name in list_layers("maps") for shape in ((2, D, 0, 5), (2, D, 5, 0), (0, D, 0, 5))),
    *((name, "tokens", (2, 0, D)) for name in list_layers("tokens")),
]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("name", "layout", "shape"), EMPTY)
def test_where_there_is_nothing_nothing_comes_out(name, layout, shape, training):
    layer = create_layer(name, D, layout=layout, size=SIDE).train(training)
    x = torch.zeros(shape, requires_grad=True)
    y = layer(x)
    assert y.shape == shape
    y.sum().backward()
    assert x.grad.shape == shape
    assert all(p.grad is None or p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize("name", list_layers("tokens"))
def test_an_empty_context_says_nothing(name):
    layer = create_layer(name, D, layout="tokens", size=SIDE)
    if getattr(layer, "reads_context", True):
        assert layer(torch.randn(2, 3, D), torch.zeros(2, 0, D)).isfinite().all()


@pytest.mark.unchecked
def test_unknown_layouts_are_refused():
    for layout in ("map", "changes", "count"):
        with pytest.raises(
            ValueError, match=f"attention: layout must be one of 'maps', 'tokens', got layout='{layout}'"
        ):
            create_layer("attention", D, layout=layout)
        with pytest.raises(ValueError, match=f"'maps', 'tokens', got layout='{layout}'"):
            layer_class("attention", layout)
        with pytest.raises(
            ValueError, match=f"list_layers: layout must be one of None, 'maps', .* got layout='{layout}'"
        ):
            list_layers(layout)


def test_the_layout_keeps_its_earlier_name():
    assert isinstance(create_layer("linear", D, face="tokens"), layer_class("linear", "tokens"))


@pytest.mark.parametrize(("name", "made"), [("augmented", "Augmented2d"), ("projected", "Projected2d")])
def test_what_is_missing_is_named(name, made):
    with pytest.raises(ValueError, match=rf"{name}: {made} needs size; its options are .*h, .*size"):
        create_layer(name, D)


def test_what_is_too_much_is_named():
    with pytest.raises(ValueError, match=r"squeeze: SqueezeExcitation2d has no h, scope, only ratio, got h=3, scope=5"):
        create_layer("squeeze", D, h=3, scope=5)


@pytest.mark.unchecked
def test_augmented_speaks_of_itself():
    layer = Augmented2d(D, size=SIDE)
    with pytest.raises(ValueError, match=r"Augmented2d: a map of size \(9, 3\) is larger .*\(7, 7\); layer.resize"):
        layer(torch.zeros(1, D, 9, 3))
    with pytest.raises(ValueError, match=r"Augmented2d: size must be a positive integer, got size=0"):
        Augmented2d(D, size=0)
    with pytest.raises(ValueError, match=r"Augmented2d: size must be one integer or 2 of them, got size=\(3,\)"):
        layer.resize((3,))
