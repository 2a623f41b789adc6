"""Intermediates are what forward computes, by name."""

import copy

import pytest
import torch

from cases import CASES, IDS
from compare import error, randomise
from lambdanets import LambdaMixer
from lambdanets.ops import apply_lambda


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_intermediates_are_those_of_forward(case, training):
    layer, (x, options) = case.build().train(training), case.inputs()
    randomise(layer)
    before = copy.deepcopy(layer.state_dict())
    looked = layer.intermediates(x, **options)
    for name, value in layer.state_dict().items():
        assert torch.equal(value, before[name]), f"looking changed {name}"
    y = layer(x, **options)
    assert torch.equal(looked.output, y)

    tokens = y if case.layer is LambdaMixer else y.flatten(2).transpose(1, 2)
    parts = [p for p in (looked.content_output, looked.position_output) if p is not None]
    assert error(sum(parts).flatten(2), tokens) < 1e-6
    if looked.content_lambda is not None:
        assert error(apply_lambda(looked.queries, looked.content_lambda), looked.content_output) < 1e-6
    else:
        assert case.arguments["terms"] == "position"
    if looked.position_lambda is not None:
        position = apply_lambda(looked.queries, looked.position_lambda)
        assert error(position, looked.position_output) < 1e-6
    else:
        assert case.arguments["terms"] == "content"


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_chosen_positions_are_those_of_all(case):
    layer, (x, options) = case.build().eval(), case.inputs()
    whole = layer.intermediates(x, **options)
    some = layer.intermediates(x, **options, at=[3, 0])
    assert some.at.tolist() == [3, 0]
    assert torch.equal(some.output, whole.output)
    for name in ("content_lambda", "position_lambda"):
        one, other = getattr(some, name), getattr(whole, name)
        if one is None or one.ndim == 3:  # absent, or one lambda for all positions
            assert one is other or torch.equal(one, other)
        else:
            assert torch.allclose(one, other[:, [3, 0]], atol=1e-6)


def test_softmax_keys_sum_to_one_over_what_may_be_used():
    layer = LambdaMixer(8, causal=True)
    keys = layer.intermediates(torch.randn(2, 9, 8), at=[0, 5]).keys
    assert torch.allclose(keys.sum(2), torch.ones(2, 2, 16, 1))
    assert (keys[:, 1, 6:] == 0).all()
    assert (keys[:, 0, 0] == 1).all()
    keys = LambdaMixer(8).intermediates(torch.randn(2, 9, 8)).keys
    assert torch.allclose(keys.sum(1), torch.ones(2, 16, 1))
