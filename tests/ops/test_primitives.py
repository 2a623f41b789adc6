"""The primitives of attention equal their oracle, outputs and gradients, in float64."""

import inspect
import math

import pytest
import torch

from compare import assert_close, error, with_gradients
from lambdanets.ops import attention as ops
from lambdanets.ops.attention.reference import primitives as oracle

B, N, M, H, K, L, A, V = 2, 5, 7, 3, 4, 6, 11, 13
TOLERANCE = 1e-10
SCORES = {
    "dot_scores": {},
    "scaled_dot_scores": {},
    "cosine_scores": {},
    "general_scores": {"keys": (B, M, H, L), "weight": (H, K, L)},
    "additive_scores": {"keys": (B, M, H, L), "of_q": (H, K, A), "of_keys": (H, L, A), "weight": (H, A)},
}


def draw(*shape):
    return torch.randn(shape, dtype=torch.float64)


def some(*shape):
    """A mask that leaves a row nothing, and another row everything."""
    mask = torch.rand(shape) < 0.5
    mask[1], mask[2] = False, True
    return mask


def compare(fast, slow, tensors):
    assert_close(with_gradients(fast, tensors), with_gradients(slow, tensors), TOLERANCE)


def test_every_score_has_an_oracle():
    assert {name for name in ops.__all__ if name.endswith("_scores")} - {"relative_scores"} == SCORES.keys()


@pytest.mark.parametrize("name", SCORES)
def test_scores(name):
    shapes = {"q": (B, N, H, K), "keys": (B, M, H, K), **SCORES[name]}
    tensors = {argument: draw(*shape) for argument, shape in shapes.items()}
    compare(lambda t: getattr(ops, name)(**t), lambda t: getattr(oracle, name)(**t), tensors)


@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0, -2.0, 40.0])
def test_softargmax(beta, is_masked):
    mask = some(N, M) if is_masked else None
    fast, slow = (lambda t, f=f: f(t["scores"], beta, mask) for f in (ops.softargmax, oracle.softargmax))
    compare(fast, slow, {"scores": draw(N, M)})


@pytest.mark.parametrize("is_masked", [False, True])
def test_hard_maps(is_masked):
    """One-hot, the first of equals, with the gradient of the soft map."""
    scores, mask = draw(N, M).round(), some(N, M) if is_masked else None
    assert torch.equal(ops.hardargmax(scores, mask), oracle.hard_map(scores, mask))
    ours = with_gradients(lambda t: ops.hard_attention_map(t["s"], beta=0.7, mask=mask), {"s": scores})
    soft = with_gradients(lambda t: oracle.softargmax(t["s"], 0.7, mask), {"s": scores})
    assert error(ours["output"], oracle.hard_map(scores, mask)) < TOLERANCE
    assert error(ours["d s"], soft["d s"]) < TOLERANCE


@pytest.mark.parametrize("beta", [None, 0.0, 3.0, math.inf])
def test_look_up(beta):
    """Without a temperature it is that of scaled products."""
    told = K**-0.5 if beta is None else beta
    tensors = {"query": draw(N, K), "keys": draw(M, K), "values": draw(M, V)}
    compare(lambda t: ops.look_up(**t, beta=beta), lambda t: oracle.look_up(**t, beta=told), tensors)


def test_look_up_is_attention():
    query, keys, values = draw(N, K), draw(M, K), draw(M, V)
    attended = ops.attend(query[None, :, None], keys[None, :, None], values[None, :, None])
    assert error(ops.look_up(query, keys, values), attended[0, :, 0]) < TOLERANCE
    assert inspect.signature(ops.softargmax).parameters["beta"].default == 1.0  # it does not know a depth


@pytest.mark.parametrize("d", [1, 4, 7])
def test_sinusoidal_codes(d):
    assert error(ops.sinusoidal_codes(N, d, dtype=torch.float64), oracle.sinusoidal_codes(N, d)) < TOLERANCE
    other = ops.sinusoidal_codes(N, d, base=10.0, dtype=torch.float64)
    assert error(other, oracle.sinusoidal_codes(N, d, 10.0)) < TOLERANCE


# Queries, context, rows of each table, clipped or not.
GRIDS = [
    ((5,), (7,), (13,), False),
    ((5,), (7,), (5,), True),
    ((7,), (5,), (1,), True),
    ((2, 3), (2, 3), (3, 5), False),
    ((2, 3), (5, 2), (3, 1), True),
]
every_grid = pytest.mark.parametrize(("queries", "context", "rows", "clip"), GRIDS)


def tables(t):
    return [t[name] for name in sorted(t) if name.startswith("table")]


@every_grid
def test_relative_scores(queries, context, rows, clip):
    tensors = {"q": draw(B, math.prod(queries), H, K)} | {f"table{i}": draw(p, K) for i, p in enumerate(rows)}
    compare(
        lambda t: ops.relative_scores(t["q"], tables(t), queries, context, clip=clip),
        lambda t: oracle.relative_scores(t["q"], tables(t), queries, context, clip),
        tensors,
    )


@every_grid
def test_relative_values(queries, context, rows, clip):
    tensors = {"a": draw(B, H, math.prod(queries), math.prod(context))}
    tensors |= {f"table{i}": draw(p, V) for i, p in enumerate(rows)}
    compare(
        lambda t: ops.relative_values(t["a"], tables(t), queries, context, clip=clip),
        lambda t: oracle.relative_values(t["a"], tables(t), queries, context, clip),
        tensors,
    )


def test_shaw():
    """Keys and values with clipped embeddings: e_nm = q_n . (k_m + r) / sqrt(k), y_n = sum_m a_nm (v_m + r')."""
    q, keys, values, of_keys, of_values = draw(1, N, H, K), draw(1, N, H, K), draw(1, N, H, V), draw(5, K), draw(5, V)
    scores = ops.dot_scores(q, keys) + ops.relative_scores(q, [of_keys], (N,), (N,), clip=True)
    a = ops.softargmax(scores, K**-0.5)
    y = ops.weighted(a, values) + ops.relative_values(a, [of_values], (N,), (N,), clip=True)
    for n in range(N):
        for h in range(H):
            rows = [max(-2, min(2, m - n)) + 2 for m in range(N)]
            e = torch.stack([q[0, n, h] @ (keys[0, m, h] + of_keys[rows[m]]) for m in range(N)])
            its = (e / math.sqrt(K)).softmax(0)
            expected = sum(its[m] * (values[0, m, h] + of_values[rows[m]]) for m in range(N))
            assert error(y[0, n, h], expected) < TOLERANCE


def test_offsets_beyond_the_table_are_refused_or_clipped():
    table = draw(5, K)
    with pytest.raises(ValueError, match="5 rows has no embedding for offsets up to 3; clip=True has"):
        ops.relative_embeddings(table, 4, 2)
    clipped = ops.relative_embeddings(table, 4, 2, clip=True)
    assert torch.equal(clipped[3, 0], table[0])  # offset -3 as offset -2
    assert torch.equal(clipped[:3], ops.relative_embeddings(table, 3, 2))
