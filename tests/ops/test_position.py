"""Every way to compute the position term equals the oracle; there is more than one, and slices of queries too."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compare import TOLERANCE, LargestTensor, assert_close, with_gradients
from lambdanets.kernels import unavailable
from lambdanets.ops import Grid, Relation, embedded_position_term, position_term, reference
from lambdanets.ops import pairs as pairs_module
from lambdanets.ops.masks import Allowed, read_mask
from lambdanets.ops.plans import PLANS, Inputs, Problem
from strategies import grids


def operands(grid, seed, b=2, h=3, k=2, v=5, u=2):
    torch.manual_seed(seed)
    shapes = {"q": (b, grid.n, h, k), "values": (b, grid.m, v, u), "table": (grid.rows, k, u)}
    return {name: torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}


def oracle(grid, allowed=None):
    index = reference.grid_index(grid.context, grid.queries, grid.scope, grid.stride, grid.dilation)

    def run(t):
        permitted = torch.ones(2, grid.n, grid.m, dtype=torch.bool) if allowed is None else allowed
        if grid.causal:
            past = reference.past(grid.context, grid.queries, grid.stride, grid.causal == "strict")
            permitted = permitted & past
        lambdas = reference.position_lambda(reference.embeddings(t["table"], index), t["values"], permitted)
        return reference.apply_lambda(t["q"], lambdas)

    return run


@pytest.mark.parametrize("plan", PLANS)
@settings(max_examples=200)
@given(grid=grids(), seed=st.integers(0, 2**16))
def test_plans_equal_the_oracle(plan, grid, seed):
    """Queries and context on grids of unrelated sizes, so that windows hang over every edge."""
    tensors = operands(grid, seed)
    problem = Problem.of(Inputs(*tensors.values(), grid))
    if PLANS[plan].supports(problem) is not None:
        with pytest.raises(ValueError, match=f"plan='{plan}' cannot compute this"):
            position_term(**tensors, geometry=grid, plan=plan)
        return
    for dtype, tolerance in TOLERANCE.items():
        cast = {name: t.to(dtype) for name, t in tensors.items()}
        exact = {name: t.double() for name, t in cast.items()}
        expected = with_gradients(oracle(grid), exact)
        assert_close(with_gradients(lambda t: position_term(**t, geometry=grid, plan=plan), cast), expected, tolerance)


@pytest.mark.skipif(unavailable() is not None, reason=f"no kernels: {unavailable()}")
@settings(max_examples=200)
@given(grid=grids().filter(lambda grid: len(grid.scope) <= 2), seed=st.integers(0, 2**16))
def test_transforms_in_the_kernels_equal_the_oracle(grid, seed):
    """On the same grids, without what transforms cannot do."""
    ones = (1,) * len(grid.scope)
    grid = Grid(grid.context, grid.queries, grid.scope, ones, ones)
    for dtype, tolerance in TOLERANCE.items():
        cast = {name: t.to(dtype) for name, t in operands(grid, seed).items()}
        expected = with_gradients(oracle(grid), {name: t.double() for name, t in cast.items()})
        found = with_gradients(lambda t: position_term(**t, geometry=grid, plan="native_fft"), cast)
        assert_close(found, expected, tolerance)


@pytest.mark.parametrize("plan", PLANS)
@settings(max_examples=100)
@given(grid=grids(), seed=st.integers(0, 2**16), kind=st.sampled_from(["rows", "pairs", "pairs per example"]))
def test_masked_plans_equal_the_oracle(plan, grid, seed, kind):
    tensors = operands(grid, seed)
    shape = {"rows": (2, 1, grid.m), "pairs": (grid.n, grid.m), "pairs per example": (2, grid.n, grid.m)}[kind]
    mask = torch.rand(shape) < 0.7
    inputs = Inputs(*tensors.values(), grid, read_mask(mask, 2, grid.n, grid.m))
    if PLANS[plan].supports(Problem.of(inputs)) is not None:
        with pytest.raises(ValueError, match=f"plan='{plan}' cannot compute this"):
            position_term(**tensors, geometry=grid, mask=mask, plan=plan)
        return
    expected = with_gradients(oracle(grid, mask.expand(2, grid.n, grid.m)), tensors)
    ours = with_gradients(lambda t: position_term(**t, geometry=grid, mask=mask, plan=plan), tensors)
    assert_close(ours, expected, 1e-10)


def test_what_each_plan_supports(monkeypatch):
    """So that no plan passes the tests above by refusing everything."""
    monkeypatch.setattr("lambdanets.kernels.support.unavailable", lambda: None)
    grid = Grid.of((5, 7), scope=3)
    tensors = operands(grid, seed=0)

    def able(geometry, allowed):
        problem = Problem.of(Inputs(*tensors.values(), geometry, allowed))
        return {name for name, plan in PLANS.items() if plan.supports(problem) is None}

    shared, per_example = (torch.ones(b, 35, 35, dtype=torch.bool) for b in (1, 2))
    relation = torch.zeros(2, 35, 35, dtype=torch.long)
    direct = {"convolution", "lambda_first", "native", "native_direct", "query_first"}
    assert able(grid, Allowed()) == direct | {"fft", "native_fft"}
    assert able(Grid.of((5, 7), scope=3, causal=True), Allowed()) == direct
    assert able(Grid.of((5, 7), scope=3, stride=2), Allowed()) == direct | {"fft"}
    assert able(grid, Allowed(pairs=shared)) == {"lambda_first", "query_first"}
    assert able(grid, Allowed(pairs=per_example)) == {"query_first"}
    assert able(Relation(relation[0]), Allowed()) == {"lambda_first", "query_first"}
    assert able(Relation(relation), Allowed()) == {"query_first"}


def test_an_unknown_plan_is_named():
    grid = Grid.of((5,), scope=3)
    with pytest.raises(ValueError, match=r"plan must be one of 'convolution', 'fft'.*got plan='fast'"):
        position_term(**operands(grid, seed=0), geometry=grid, plan="fast")


@settings(max_examples=100)
@given(grid=grids(), seed=st.integers(0, 2**16), per_example=st.booleans())
def test_given_embeddings_and_relations_equal_the_oracle(grid, seed, per_example):
    tensors = operands(grid, seed)
    batch = (2,) if per_example else ()
    index = torch.randint(grid.rows, (*batch, grid.n, grid.m))
    mask = torch.rand(2, grid.n, grid.m) < 0.7

    def slow(t):
        lambdas = reference.position_lambda(reference.embeddings(t["table"], index), t["values"], mask)
        return reference.apply_lambda(t["q"], lambdas)

    expected = with_gradients(slow, tensors)
    related = with_gradients(
        lambda t: position_term(t["q"], t["values"], t["table"], Relation(index), mask=mask), tensors
    )
    given_e = with_gradients(
        lambda t: embedded_position_term(t["q"], t["values"], t["table"][index], mask=mask), tensors
    )
    assert_close(related, expected, 1e-10)
    assert_close(given_e, expected, 1e-10)


@pytest.mark.parametrize("masked", [False, True], ids=["unmasked", "masked"])
def test_slices_of_queries_give_the_same_and_keep_nothing(monkeypatch, masked):
    """With room for two queries at a time, the result is the same and no tensor of n m numbers is saved."""
    n = 23
    grid = Grid((n,), (n,), (5,), (1,), (1,))
    tensors = operands(grid, seed=0)
    mask = torch.rand(2, n, n) < 0.7 if masked else torch.ones(1, n, n, dtype=torch.bool)
    expected = with_gradients(oracle(grid, mask.expand(2, n, n)), tensors)
    monkeypatch.setattr(pairs_module, "LARGEST", 2 * 2 * n * 3 * 2)
    saved = []

    def run(t):
        with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.numel()) or x, lambda x: x):
            return position_term(t["q"], t["values"], t["table"], grid, mask=mask)

    assert_close(with_gradients(run, tensors), expected, 1e-10)
    assert max(saved, default=0) < n * n


def test_a_large_masked_term_has_bounded_memory():
    """n m pairs of k numbers would be 2 GB here; the slices stay below 64 MB each."""
    n = 2880
    grid = Grid((n,), (n,), (9,), (1,), (1,))
    torch.manual_seed(0)
    q, values, table = torch.randn(1, n, 1, 64), torch.randn(1, n, 4, 1), torch.randn(9, 64, 1)
    mask = torch.ones(n, n, dtype=torch.bool)
    sizes = []
    with LargestTensor(sizes):
        y = position_term(q, values, table, grid, mask=mask)
    assert max(sizes) <= 2**24
    assert torch.allclose(y, position_term(q, values, table, grid, plan="convolution"), atol=1e-4)


@pytest.mark.parametrize("masked", [False, True], ids=["convolution", "pairs"])
def test_autocast_does_not_reach_the_sums(masked):
    grid = Grid.of((23,), scope=5)
    tensors = {name: t.float() for name, t in operands(grid, seed=0).items()}
    mask = torch.rand(23, 23) < 0.7 if masked else None
    expected = position_term(**tensors, geometry=grid, mask=mask)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(position_term(**tensors, geometry=grid, mask=mask), expected)


@pytest.mark.parametrize("shape", [{"k": 1}, {"k": 1, "v": 1, "h": 1}, {"k": 1, "v": 1, "b": 1}, {"u": 1}], ids=str)
@pytest.mark.parametrize("context", [(1, 2), (2, 1), (1, 1), (1, 2, 1)], ids=str)
def test_tensors_whose_layout_is_ambiguous(context, shape):
    """With axes of length 1 a permuted tensor can pass for channels-last; torch's convolutions trip over that."""
    ones = (1,) * len(context)
    grid = Grid(context, ones, tuple(2 * c - 1 for c in context), ones, ones)
    tensors = operands(grid, seed=0, **({"b": 2} | shape))
    everything = torch.ones(len(tensors["q"]), 1, grid.m, dtype=torch.bool)
    expected = with_gradients(oracle(grid, everything), tensors)
    problem = Problem.of(Inputs(*tensors.values(), grid))
    for plan in (name for name, plan in PLANS.items() if plan.supports(problem) is None):
        ours = with_gradients(lambda t, plan=plan: position_term(**t, geometry=grid, plan=plan), tensors)
        assert_close(ours, expected, 1e-10)


LARGER_THAN_THE_MAP = """
import torch
from lambdanets.ops import Grid, position_term
torch.manual_seed(0)
grid = Grid.of((11, 7), scope=23)
shapes = (2, grid.n, 4, 16), (2, grid.m, 3, 1), (grid.rows, 16, 1)
leaves = [torch.randn(shape, requires_grad=True) for shape in shapes]
exact = [t.detach().double().requires_grad_() for t in leaves]
expected = torch.autograd.grad(position_term(*exact, grid, plan="query_first").square().sum(), exact)
for _ in range(20):
    found = torch.autograd.grad(position_term(*leaves, grid, plan="convolution").square().sum(), leaves)
    for ours, theirs in zip(found, expected):
        assert (ours - theirs).abs().max() <= 1e-5 * theirs.abs().max()
"""


def test_gradients_of_windows_larger_than_the_map_stay_in_their_memory():
    """In a process of its own: with AVX-512, a convolution that pads the map itself corrupts the heap here."""
    done = subprocess.run([sys.executable, "-c", LARGER_THAN_THE_MAP], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
