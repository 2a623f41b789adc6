"""Every variant of the layers equals the oracle: outputs and all gradients, float32 and float64."""

import pytest
import torch
from hypothesis import given, settings

from compare import SWEEP, TOLERANCE, assert_close, layer_with_gradients, oracle_with_gradients
from strategies import lambda_cases


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@settings(max_examples=10_000 if SWEEP else 500)
@given(case=lambda_cases())
def test_layer_equals_oracle(case, dtype):
    layer = case.build(dtype)
    x = case.x.to(dtype)
    context = None if case.context is None else case.context.to(dtype)
    options = {"mask": case.mask, "relation": case.relation}
    oracle = oracle_with_gradients(layer, x, context, tokens=case.tokens, **options, **case.oracle)
    # Near the singularity of a norm, or where a sum cancels, float32 decides nothing in the fifth digit: there the
    # layer may be off by twice as much as the oracle's own formulas in float32, and by no more.
    naive = oracle_with_gradients(layer, x, context, tokens=case.tokens, dtype=dtype, **options, **case.oracle)
    ours = layer_with_gradients(layer, x, context, **options)
    assert_close(ours, oracle, TOLERANCE[dtype], naive)
