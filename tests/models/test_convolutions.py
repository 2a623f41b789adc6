"""The convolutions of the ResNets are torch's, also where they are computed as one product."""

import pytest
import torch
from torch import nn

from lambdanets.models.middle import Conv2d
from lambdanets.nn.pointwise import is_quicker

LAST = torch.channels_last


def pair(d_in, d_out, bias=False):
    """Ours, and torch's with the same weights."""
    torch.manual_seed(0)
    ours = Conv2d(d_in, d_out, 1).to(memory_format=LAST).double()
    theirs = nn.Conv2d(d_in, d_out, 1, bias=bias).double()
    if bias:  # as after batch norms are folded into it
        ours.bias = nn.Parameter(torch.randn(d_out).double())
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(2, 17, 3, 2), (1, 17, 1, 1), (1, 17, 1, 13), (3, 17, 1, 1)], ids=str)
def test_product(shape, bias):
    ours, theirs = pair(17, 13, bias)
    x, g = (torch.randn(shape[0], d, *shape[2:]).double().contiguous(memory_format=LAST) for d in (17, 13))
    leaves = [x.clone(memory_format=torch.preserve_format).requires_grad_() for _ in range(2)]
    assert is_quicker(ours, x)
    for y, expected in zip(
        *(with_gradients(*each, g) for each in zip((ours, theirs), leaves, strict=True)), strict=True
    ):
        torch.testing.assert_close(y, expected)
    assert ours(x).is_contiguous(memory_format=LAST)


def with_gradients(layer, x, g):
    y = layer(x)
    return y, *torch.autograd.grad(y, [x, *layer.parameters()], g)


def test_left_to_torch():
    ours, _ = pair(17, 13)
    maps = torch.randn(2, 17, 2, 3).double()
    assert not is_quicker(ours, maps)  # channels first
    for other in (maps[:0], maps.repeat(2, 1, 2, 2), maps[:, :5], maps[0], maps.to("meta")):
        form = {"memory_format": LAST} if other.ndim == 4 else {}
        assert not is_quicker(ours, other.contiguous(**form))
    assert not is_quicker(Conv2d(17, 13, 1, stride=2), maps.contiguous(memory_format=LAST))
    assert not is_quicker(Conv2d(17, 13, 3), maps.contiguous(memory_format=LAST))
    with pytest.raises(RuntimeError, match="to have 17 channels"):
        ours(maps[:, :5].contiguous(memory_format=LAST))
