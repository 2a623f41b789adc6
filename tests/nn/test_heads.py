"""Queries, keys and values: one product, unless somebody has to do with one of them."""

import copy

import pytest
import torch
from torch import nn

from lambdanets.nn import create_layer


@pytest.mark.parametrize("name", ["attention", "multiquery", "axial", "linear"])
def test_whoever_listens_to_a_projection_hears(name):
    torch.manual_seed(0)
    options = {"size": (5, 3)} if name in ("attention", "axial") else {}
    layer, x = create_layer(name, 8, h=2, **options).double(), torch.randn(2, 8, 5, 3).double()
    y, heard = layer(x), []
    projections = [m for m in layer.modules() if isinstance(m, nn.Linear)]
    for projection in projections:
        projection.register_forward_hook(lambda *_: heard.append(1))
    torch.testing.assert_close(layer(x), y)
    assert len(heard) == len(projections)


def test_a_projection_can_be_replaced():
    torch.manual_seed(0)
    layer, x = create_layer("attention", 8, layout="tokens", h=2).double(), torch.randn(2, 5, 8).double()
    other = copy.deepcopy(layer)
    other.heads.query = nn.Sequential(other.heads.query)
    torch.testing.assert_close(other(x), layer(x))
