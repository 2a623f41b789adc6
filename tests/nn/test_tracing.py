"""`torch.jit.trace` of every layer answers what the layer does, traced with and without gradients."""

import pytest
import torch
from torch import nn

from cases import CASES as LAMBDA_CASES
from compare import error
from families import CASES as FAMILY_CASES
from lambdanets import create_model

CASES = [*LAMBDA_CASES, *FAMILY_CASES]
pytestmark = [
    pytest.mark.unchecked,
    # torch.jit is deprecated, and a trace is for the sizes it was made with.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning"),
]


class Named(nn.Module):
    """With inputs by position, as a trace has them."""

    def __init__(self, layer, names):
        super().__init__()
        self.layer, self.names = layer, names

    def forward(self, *inputs):
        return self.layer(**dict(zip(self.names, inputs, strict=True)))


@pytest.mark.parametrize("grad", [True, False], ids=["with gradients", "without"])
@pytest.mark.parametrize("case", CASES, ids=map(str, CASES))
def test_every_layer(case, grad):
    layer, (x, options) = case.build().eval(), case.inputs()
    inputs = {"x": x, **options}
    with torch.set_grad_enabled(grad):
        traced = torch.jit.trace(Named(layer, list(inputs)), tuple(inputs.values()))
        other = {name: torch.randn_like(t) if t.is_floating_point() else t for name, t in inputs.items()}
        assert error(traced(*other.values()), layer(**other)) < 1e-5


@pytest.mark.parametrize("name", ["lambda_resnet14_small", "lambda_vit_tiny", "vit_tiny"])
def test_networks(name):
    options = {"depth": 1} if "vit" in name else {}
    network = create_model(name, **options).eval()
    x = torch.randn(2, *(3, 224, 224) if "vit" in name else (3, 32, 32))
    assert error(torch.jit.trace(network, x)(x), network(x)) < 1e-5
