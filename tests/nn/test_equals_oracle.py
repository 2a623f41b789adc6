"""Every variant of the layers equals the oracle: outputs and all gradients, float32 and float64."""

import pytest
import torch
from hypothesis import assume, given, settings

from compare import SWEEP, TOLERANCE, assert_close, layer_with_gradients, oracle_with_gradients
from strategies import lambda_cases


def well_conditioned(case, layer) -> bool:
    """No L2 norm of keys near its singularity at zero, where the last bit of float32 decides a gradient."""
    if case.arguments["key_norm"] != "l2" or layer.key is None:
        return True
    context = case.x if case.context is None else case.context
    tokens = context if case.tokens else context.flatten(2).transpose(1, 2)
    squares = (tokens.to(layer.key.weight.dtype) @ layer.key.weight.T).double().square()
    lengths = torch.einsum("bnm,bmc->bnc", case.allowed().double(), squares).sqrt()
    return not ((lengths > 0) & (lengths < 0.1)).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@settings(max_examples=10_000 if SWEEP else 1000)
@given(case=lambda_cases())
def test_layer_equals_oracle(case, dtype):
    layer = case.build(dtype)
    x = case.x.to(dtype)
    context = None if case.context is None else case.context.to(dtype)
    options = {"mask": case.mask, "relation": case.relation}
    assume(dtype == torch.float64 or well_conditioned(case, layer))
    oracle = oracle_with_gradients(layer, x, context, tokens=case.tokens, **options, **case.oracle)
    ours = layer_with_gradients(layer, x, context, **options)
    assert_close(ours, oracle, TOLERANCE[dtype])
