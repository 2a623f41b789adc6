"""The content term: masked, causal and extreme."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compare import TOLERANCE, LargestTensor, assert_close, with_gradients
from lambdanets.ops import content_term, reference
from lambdanets.ops.causal import causal_content

KEY_NORMS = ["softmax", "l2", "none"]


def operands(b, n, m, h=2, k=3, v=5, u=2, scale=1.0, dtype=torch.float64):
    q, keys, values = torch.randn(b, n, h, k), scale * torch.randn(b, m, k, u), torch.randn(b, m, v, u)
    return {"q": q.to(dtype), "keys": keys.to(dtype), "values": values.to(dtype)}


def oracle(allowed, key_norm):
    def run(t):
        lambdas = reference.content_lambda(t["keys"], t["values"], allowed, key_norm)
        return reference.apply_lambda(t["q"], lambdas)

    return run


@pytest.mark.parametrize("key_norm", KEY_NORMS)
@pytest.mark.parametrize("strict", [False, True], ids=["causal", "strict"])
@settings(max_examples=60)
@given(n=st.integers(1, 23), chunk=st.integers(1, 9), masked=st.booleans(), seed=st.integers(0, 2**16))
def test_causal_running_sums_equal_the_oracle(key_norm, strict, n, chunk, masked, seed):
    """Whatever the length of the chunks, and with padding anywhere, at the start too."""
    torch.manual_seed(seed)
    tensors = operands(2, n, n)
    rows = torch.rand(2, n) < 0.5 if masked else None
    allowed = torch.ones(2, n, n, dtype=torch.bool).tril(-1 if strict else 0)
    allowed = allowed if rows is None else allowed & rows[:, None]

    def ours(t):
        return causal_content(t["q"], t["keys"], t["values"], key_norm, rows, strict=strict, chunk=chunk)

    assert_close(with_gradients(ours, tensors), with_gradients(oracle(allowed, key_norm), tensors), 1e-10)


@pytest.mark.parametrize("key_norm", KEY_NORMS)
@pytest.mark.parametrize("kind", ["all", "rows", "pairs", "causal", "strict", "causal pairs"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_keys_of_large_magnitude(key_norm, kind, dtype):
    """Keys of 1e4, the same numbers for both: finite, and as close to float64 as any others."""
    n = 70  # more than two chunks
    tensors = operands(2, n, n, scale=1e4, dtype=dtype)
    # Keys that grow along the context: for early queries a shift by the largest key would leave nothing.
    tensors["keys"] += 1e3 * torch.arange(n, dtype=dtype)[:, None, None]
    allowed, options = permitted(kind, n)
    exact = {name: t.double() for name, t in tensors.items()}
    ours = with_gradients(lambda t: content_term(*t.values(), key_norm=key_norm, **options), tensors)
    assert all(t.isfinite().all() for t in ours.values())
    assert_close(ours, with_gradients(oracle(allowed, key_norm), exact), TOLERANCE[dtype])


def permitted(kind, n):
    """What a kind of mask permits as (b, n, m), and the arguments that say so."""
    rows, pairs = torch.rand(2, 1, n) < 0.7, torch.rand(2, n, n) < 0.7
    past = torch.ones(n, n, dtype=torch.bool).tril()
    everything = torch.ones(2, n, n, dtype=torch.bool)
    return {
        "all": (everything, {}),
        "rows": (everything & rows, {"mask": rows}),
        "pairs": (pairs, {"mask": pairs}),
        "causal": (everything & past, {"causal": True}),
        "strict": (everything & past.tril(-1), {"causal": "strict"}),
        "causal pairs": (pairs & past, {"causal": True, "mask": pairs}),
    }[kind]


@pytest.mark.parametrize("kind", ["rows", "pairs", "causal pairs"])
@pytest.mark.parametrize("key_norm", KEY_NORMS)
def test_nan_in_rows_that_no_query_may_use(kind, key_norm):
    n = 11
    tensors = operands(2, n, n)
    _, options = permitted(kind, n)
    options["mask"] = options["mask"].clone()
    options["mask"][..., 4] = False
    expected = with_gradients(lambda t: content_term(*t.values(), key_norm=key_norm, **options), tensors)
    for name in ("keys", "values"):
        tensors[name][:, 4] = torch.nan
    ours = with_gradients(lambda t: content_term(*t.values(), key_norm=key_norm, **options), tensors)
    for name in expected:
        assert torch.equal(ours[name], expected[name])


@pytest.mark.parametrize("key_norm", KEY_NORMS)
@pytest.mark.parametrize("options", [{}, {"mask": torch.ones(5, 1, dtype=torch.bool)}], ids=["all", "masked"])
def test_no_context_at_all(key_norm, options):
    tensors = operands(2, 5, 0)
    ours = with_gradients(lambda t: content_term(*t.values(), key_norm=key_norm, **options), tensors)
    assert all((t == 0).all() for t in ours.values())


def test_memory_of_the_causal_term_is_linear_in_n():
    """No tensor grows faster than n, far beyond the length of a chunk."""
    largest = []
    for n in (8192, 131_072):
        sizes = []
        with LargestTensor(sizes):
            content_term(*operands(1, n, n, h=1, k=2, v=2, u=1, dtype=torch.float32).values(), causal=True)
        largest.append(max(sizes))
    assert largest[1] <= 16 * largest[0]


def test_tensors_can_be_given_by_name_and_in_half_precision():
    tensors = operands(2, 5, 5, dtype=torch.float16)
    y = content_term(**tensors)
    assert y.dtype == torch.float16
    assert torch.equal(y, content_term(*tensors.values()))


@pytest.mark.parametrize("scale", [1e-25, 1e25])
@pytest.mark.parametrize("kind", ["all", "rows", "pairs", "causal", "strict", "causal pairs"])
def test_l2_norms_of_extreme_keys(kind, scale):
    """Squares that float32 cannot hold: L2 does not depend on the unit of the keys."""
    tensors = operands(2, 70, 70, dtype=torch.float32)
    _, options = permitted(kind, 70)
    expected = content_term(**tensors, key_norm="l2", **options)
    tensors["keys"] *= scale
    assert torch.allclose(content_term(**tensors, key_norm="l2", **options), expected, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["all", "rows", "pairs", "causal"])
def test_autocast_does_not_reach_the_sums(kind, dtype):
    tensors = operands(2, 70, 70, dtype=torch.float32)
    _, options = permitted(kind, 70)
    expected = content_term(**tensors, **options)
    with torch.autocast("cpu", dtype):
        assert torch.equal(content_term(**tensors, **options), expected)
