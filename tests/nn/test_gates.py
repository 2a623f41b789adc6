"""Gates: what they equal, as lambdas too, and what they refuse."""

import pytest
import torch
from timm.layers import SqueezeExcite
from timm.layers.cbam import CbamModule

from compare import error, randomise
from lambdanets.nn.gates.bam import BAM2d
from lambdanets.nn.gates.cbam import CBAM2d
from lambdanets.nn.gates.film import FiLM2d, FiLMMixer
from lambdanets.nn.gates.squeeze import SqueezeExcitation, SqueezeExcitation2d, SqueezeExcitationMixer
from lambdanets.ops import apply_lambda
from lambdanets.ops.attention.gates import pooled

D = 32


def test_squeeze_and_excitation_is_a_lambda_layer_whose_lambda_is_diagonal_and_shared():
    """The input is the query, k = v = d, and one lambda diag(s) of the whole map serves all positions."""
    layer, x = SqueezeExcitation(D, 4), torch.randn(2, D, 5, 7)
    lambdas = torch.diag_embed(layer.excite(x.mean((2, 3), keepdim=True))[..., 0, 0])
    q = x.flatten(2).transpose(1, 2)[:, :, None]
    y = apply_lambda(q, lambdas)[:, :, 0].transpose(1, 2).unflatten(2, (5, 7))
    assert error(layer(x), y) < 1e-6


def scales(layer):
    """What every channel of every position is multiplied with, (b, n, d)."""
    x = torch.randn(2, D, 5, 7, dtype=torch.float64)
    return (layer.double().eval()(x) / x).flatten(2).transpose(1, 2)


def test_cbam_is_a_shared_diagonal_lambda_times_a_scalar_one():
    found = scales(CBAM2d(D))
    of_positions, of_channels = found[:, :, :1], found[:, :1] / found[:, :1, :1]
    assert error(of_positions * of_channels, found) < 1e-10
    assert 0 < found.min() < found.max() < 1


def test_bam_adds_a_scalar_to_a_shared_diagonal():
    found = (scales(BAM2d(D)) - 1).logit()
    of_positions, of_channels = found[:, :, :1], found[:, :1] - found[:, :1, :1]
    assert error(of_positions + of_channels, found) < 1e-8


def test_both_faces_are_the_module_that_networks_have():
    module, x = SqueezeExcitation(D, 4), torch.randn(2, D, 5, 7)
    assert list(module.state_dict()) == ["reduce.weight", "reduce.bias", "expand.weight", "expand.bias"]
    on_maps, on_tokens = SqueezeExcitation2d(D, ratio=4), SqueezeExcitationMixer(D, ratio=4)
    on_maps.gate.load_state_dict(module.state_dict())
    on_tokens.gate.load_state_dict(module.state_dict())
    assert error(on_maps(x), module(x)) < 1e-6
    assert error(on_tokens(x.flatten(2).transpose(1, 2)), module(x).flatten(2).transpose(1, 2)) < 1e-6


def test_squeeze_and_excitation_equals_timm():
    theirs, ours = SqueezeExcite(D, rd_channels=2), SqueezeExcitation2d(D)
    ours.gate.reduce.load_state_dict(theirs.fc1.state_dict())
    ours.gate.expand.load_state_dict(theirs.fc2.state_dict())
    x = torch.randn(2, D, 5, 7)
    assert error(ours(x), theirs(x)) < 1e-5


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_cbam_equals_timm(training):
    theirs, ours = CbamModule(D), CBAM2d(D)
    randomise(theirs)
    ours.channel[0].weight.data.copy_(theirs.channel.fc1.weight[..., 0, 0])
    ours.channel[2].weight.data.copy_(theirs.channel.fc2.weight[..., 0, 0])
    ours.spatial.load_state_dict(theirs.spatial.conv.conv.state_dict())
    ours.spatial_norm.load_state_dict(theirs.spatial.conv.bn.state_dict())
    x = torch.randn(2, D, 9, 8)
    for layer in (ours, theirs):
        layer.train(training)
    assert error(ours(x), theirs(x)) < 1e-5
    assert error(ours.spatial_norm.running_var, theirs.spatial.conv.bn.running_var) < 1e-5


def test_film_does_to_channels_what_the_context_says():
    """Zeros say nothing, and then the input comes out."""
    layer, x = FiLM2d(D, d_context=5), torch.randn(2, D, 4, 3)
    assert torch.equal(layer(x, torch.zeros(2, 5, 1, 1)), x)
    assert not torch.equal(layer(x, torch.ones(2, 5, 1, 1)), x)


def test_means_of_large_maps_in_half_precision():
    """Their sums are beyond float16."""
    assert pooled(torch.full((1, 300_000, 1), 2.0, dtype=torch.float16)).item() == 2.0
    rows = torch.ones(1, 300_000, dtype=torch.bool)
    assert pooled(torch.full((1, 300_000, 1), 2.0, dtype=torch.float16), rows).item() == 2.0


def test_one_example_in_training():
    """Its gradient arrives transposed, which torch's batch norm on maps does not survive."""
    for layer in (CBAM2d(4), SqueezeExcitation2d(4), FiLM2d(4)):
        x = torch.randn(1, 4, 3, 5, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(layer.double(), x)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "message"),
    [
        *(
            (lambda gate=gate: gate(D, 48), f"{gate.__name__}: .*d_in=32, d_out=48")
            for gate in (SqueezeExcitation2d, SqueezeExcitationMixer, FiLM2d, FiLMMixer, BAM2d, CBAM2d)
        ),
        *(
            (lambda gate=gate: gate(D, ratio=0), f"{gate.__name__}: .*ratio=0")
            for gate in (SqueezeExcitation2d, BAM2d, CBAM2d)
        ),
        *(
            (lambda gate=gate: gate(D)(torch.randn(2, D, 3, 4), torch.randn(2, D, 3, 4)), f"{gate.__name__}: .*context")
            for gate in (SqueezeExcitation2d, BAM2d, CBAM2d)
        ),
        *(
            (lambda gate=gate: gate(D)(torch.randn(2, D, 3, 4), mask=torch.ones(12) > 0), f"{gate.__name__}: .*mask")
            for gate in (BAM2d, CBAM2d)
        ),
        *(
            (lambda gate=gate: gate(D)(torch.randn(2, D, 3, 4), mask=torch.ones(12, 12) > 0), r"\(b, 1, m\)")
            for gate in (SqueezeExcitation2d, FiLM2d)
        ),
        (lambda: BAM2d(D, dilation=0), "BAM2d: .*dilation=0"),
        (lambda: BAM2d(D)(torch.randn(1, D, 3, 4)), "BAM2d: batch norm needs more than one value"),
    ],
)
def test_errors_name_what_is_wrong(call, message):
    with pytest.raises(ValueError, match=message):
        call()
