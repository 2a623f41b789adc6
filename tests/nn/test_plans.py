"""A layer's plan can be forced and is explained; every plan serves whole layers."""

import re

import pytest
import torch

from compare import error
from lambdanets import LambdaLayer1d, LambdaLayer2d, LambdaLayer3d, LambdaMixer
from lambdanets.kernels import unavailable
from lambdanets.ops.plans import PLANS


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(
    ("layer", "size"), [(LambdaLayer1d, (23,)), (LambdaLayer2d, (5, 11)), (LambdaLayer3d, (3, 5, 4))]
)
def test_a_forced_plan_gives_the_same_layer(layer, size, plan):
    free = layer(13, 10, h=2, k=7, u=2, scope=5)
    forced = layer(13, 10, h=2, k=7, u=2, scope=5, plan=plan)
    forced.load_state_dict(free.state_dict())
    x = torch.randn(3, 13, *size)
    refusal = "maps of one or two axes" if layer is LambdaLayer3d else unavailable()
    if plan.startswith("native") and refusal is not None:
        with pytest.raises(ValueError, match=re.escape(refusal)):
            forced(x)
        return
    assert forced.explain(size, b=3, patience=0.0).chosen == plan
    results = []
    for module in (free, forced):
        y = module(x)
        results.append([y, *torch.autograd.grad(y.square().sum(), list(module.parameters()))])
    for ours, expected in zip(*results, strict=True):
        assert error(ours, expected) < 1e-5


def test_an_explanation_measures_what_it_has_patience_for():
    explained = LambdaMixer(8, causal=True, scope=5).explain(31, b=2, training=True)
    by_name = {plan.name: plan for plan in explained.plans}
    assert "trace of the future" in by_name["fft"].reason
    assert "no causality" in by_name["native_fft"].reason or unavailable() is not None
    assert by_name["fft"].measured is None
    able = {name for name, plan in by_name.items() if plan.reason is None}
    assert {name for name, plan in by_name.items() if plan.measured is not None} == able
    assert able >= {"convolution", "lambda_first", "query_first"}
    assert all(by_name[name].measured > 0 for name in able)
    assert explained.chosen in PLANS
    assert "->" in str(explained)


@pytest.mark.parametrize("training", [False, True])
def test_large_global_maps_are_for_transforms(monkeypatch, training):
    """Where the windows are as large as the map, n log n wins by orders of magnitude: in C, or else in torch."""
    layer = LambdaLayer2d(64, scope=None, size=128)
    if unavailable() is None:
        assert layer.explain(128, training=training, patience=0.0).chosen == "native"
    monkeypatch.setattr("lambdanets.kernels.support.unavailable", lambda: "for this test")
    assert layer.explain(128, training=training, patience=0.0).chosen == "fft"


def test_a_plan_that_cannot_is_refused_with_the_reason():
    layer = LambdaMixer(8, causal=True, plan="fft")
    with pytest.raises(ValueError, match="plan='fft' cannot compute this: rounding"):
        layer(torch.randn(2, 9, 8))
    with pytest.raises(ValueError, match="LambdaMixer: only the position term on a grid"):
        LambdaMixer(8, terms="content").explain(9)
    with pytest.raises(ValueError, match="plan must be one of None, 'convolution'"):
        LambdaMixer(8, plan="fastest")
