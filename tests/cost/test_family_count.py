"""What the layers of the family multiply, against torch's own counter where that sees every product."""

import pytest
import torch
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
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(map(str, value.values())),
)
def test_as_torch_counts(name, options):
    layer = create_layer(name, WIDTH, size=SIZE, **options).eval()
    x = torch.randn(1, WIDTH, SIZE, SIZE)
    with FlopCounterMode(display=False) as counter, torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        layer(x)
    _, ours = totals(count(layer, x.shape))
    assert ours == pytest.approx(counter.get_total_flops(), rel=1e-9)


@pytest.mark.parametrize("name", ["local", "relation", "vector"])
def test_windows_grow_with_the_map_and_not_with_its_square(name):
    layer = create_layer(name, WIDTH)
    small, large = (totals(count(layer, (1, WIDTH, side, side)))[1] for side in (14, 28))
    assert large == pytest.approx(4 * small, rel=0.01)  # what is known of the offsets is counted once


def test_gates_cost_next_to_nothing():
    for name in ("squeeze", "film"):
        assert totals(count(create_layer(name, WIDTH), (1, WIDTH, 28, 28)))[1] < 28 * 28 * WIDTH
