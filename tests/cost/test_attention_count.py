"""What the layers of the family multiply, against torch's own counter where that sees every product."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lambdanets import create_layer
from lambdanets.cost.count import count, totals

SIZE, WIDTH = 12, 16


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("attention", {"positions": "none"}),
        ("attention", {"positions": "relative"}),
        ("multiquery", {"positions": "none", "k": 3}),
        ("axial", {"positions": "none"}),
        ("axial", {"positions": "relative"}),
        ("linear", {}),
        ("efficient", {"k": 3}),
        ("projected", {"rank": 5}),
        ("double", {}),
        ("augmented", {}),
        ("squeeze", {}),
        ("film", {}),
        ("bam", {}),
        ("cbam", {}),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(map(str, value.values())),
)
def test_as_torch_counts(name, options):
    layer = create_layer(name, WIDTH, size=SIZE, **options).eval()
    agrees_with_torch(layer, torch.randn(1, WIDTH, SIZE, SIZE))


def agrees_with_torch(module, x):
    with FlopCounterMode(display=False) as counter, torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        module(x)
    _, ours = totals(count(module, x.shape))
    assert ours == pytest.approx(counter.get_total_flops(), rel=1e-9)


class Crossed(nn.Module):
    """A layer that reads a context, given by its place or by its name."""

    def __init__(self, layer, by_name):
        super().__init__()
        self.layer, self.by_name = layer, by_name
        self.register_buffer("context", torch.randn(2, 5, WIDTH))

    def forward(self, x):
        return self.layer(x=x, context=self.context) if self.by_name else self.layer(x, self.context)


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("attention", {"positions": "none"}),
        ("multiquery", {"positions": "none", "k": 3}),
        ("linear", {}),
        ("efficient", {"k": 3}),
        ("projected", {"rank": 3, "size": 5}),
    ],
)
def test_another_context(name, options, by_name):
    layer = create_layer(name, WIDTH, layout="tokens", **options)
    agrees_with_torch(Crossed(layer, by_name).eval(), torch.randn(2, 50, WIDTH))


WINDOW = {"scope": (3, 5)}  # 15 positions


@pytest.mark.parametrize(
    ("name", "options", "each", "once"),
    [
        # q, k and v; scores and sums of two heads; scores of an offset for each row and column
        ("local", {"h": 2, "k": 3}, 16 * (6 + 6 + 16) + 2 * 15 * (3 + 8) + 2 * (3 + 5) * 3, 0),
        ("local", {"h": 2, "k": 3, "positions": "none"}, 16 * (6 + 6 + 16) + 2 * 15 * (3 + 8), 0),
        # q and k; scores of two groups and sums; the prior of each offset
        ("relation", {"k": 3}, 16 * (6 + 6) + 15 * (2 * 3 + 16), 15 * (2 * 2 + 2 * 2)),
        # q, k and v; both layers of the network; sums
        ("vector", {"k": 4}, 16 * (4 + 4 + 16) + (1 + 15) * 4 * 2 + 2 * 2 * 15 + 15 * 16, 0),
        # q, k and v; the network's first layer on q and on k, its second on each pair; sums; the place of each offset
        ("vector", {"k": 4, "kind": "pairwise"}, 16 * (4 + 4 + 16) + 2 * 4 * 4 + 15 * 4 * 2 + 15 * 16, 15 * 2 * 2),
    ],
)
def test_windows(name, options, each, once):
    layer = create_layer(name, 16, **WINDOW, **options)
    assert sum(c.multiply_adds for c in count(layer, (2, 16, 5, 7))) == 2 * 5 * 7 * each + once
