"""Small outputs beside large ones are right: every output to a share of the products in its own window.

Default plans, with and without kernels, in float32 and float64, on maps where the kernels take Fourier transforms.
"""

import pytest
import torch

from compare import SWEEP
from hostile import MAPS, TABLES, Bounds, hostile, windows
from lambdanets.kernels import instruction_set, support, unavailable
from lambdanets.kernels.library import use_instruction_set
from lambdanets.ops import Grid, position_term
from lambdanets.ops.plans import PLANS

GRIDS = {
    "local": Grid.of((40, 37), scope=15),
    "global": Grid.of((17, 19), scope=(33, 37)),
    "line": Grid.of((700,), scope=201),
    "cross": Grid((24, 31), (29, 26), (17, 19), (1, 1), (1, 1)),
}
needs_kernels = pytest.mark.skipif(unavailable() is not None, reason=f"no kernels: {unavailable()}")
NAMES = ("dq", "dvalues", "dtable")


def operands(grid, dtype, *, values="normal", q="normal", dy="normal", table="normal", b=2, h=2, k=4, v=8, u=1, seed=0):
    return (
        hostile(q, (b, grid.n, h, k), grid.queries, seed, dtype),
        hostile(values, (b, grid.m, v, u), grid.context, seed + 1, dtype),
        hostile(table, (1, grid.rows, k, u), grid.scope, seed + 2, dtype)[0],
        hostile(dy, (b, grid.n, h, v), grid.queries, seed + 3, dtype),
    )


def with_gradients(tensors, dy, grid, plan):
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    y = position_term(*leaves, grid, plan=plan)
    return {"y": y.detach(), **dict(zip(NAMES, torch.autograd.grad(y, leaves, dy), strict=True))}


def excess(grid, plan, dtype=torch.float32, **kinds):
    """Errors in units of what they may be. float64 has no exact answer to compare with but the direct sum's."""
    q, values, table, dy = operands(grid, dtype, **kinds)
    exact = with_gradients([t.double() for t in (q, values, table)], dy.double(), grid, "convolution")
    return Bounds(q, values, table, dy, grid).excess(with_gradients((q, values, table), dy, grid, plan), exact)


def assert_within(found):
    wrong = {name: ratio for name, ratio in found.items() if not ratio <= 1}
    assert not wrong, f"off by so many times what is allowed: {wrong}"


@pytest.fixture(params=["kernels", "torch"])
def default_plan(request, monkeypatch):
    if request.param == "torch":
        monkeypatch.setattr("lambdanets.kernels.support.unavailable", lambda: "for this test")
    elif unavailable() is not None:
        pytest.skip(f"no kernels: {unavailable()}")
    return None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS.keys())
@pytest.mark.parametrize("kind", MAPS)
def test_hostile_values(default_plan, kind, grid, dtype):
    assert_within(excess(grid, default_plan, dtype, values=kind))


@pytest.mark.parametrize("which", ["q", "dy"])
@pytest.mark.parametrize("kind", MAPS)
def test_hostile_queries_and_gradients(default_plan, kind, which):
    assert_within(excess(GRIDS["local"], default_plan, **{which: kind}))


@pytest.mark.parametrize("values", ["normal", "smooth", "1e6 in 1e-3", "sparse", "constant"])
@pytest.mark.parametrize("table", TABLES)
def test_hostile_tables(default_plan, table, values):
    assert_within(excess(GRIDS["local"], default_plan, table=table, values=values))


@pytest.mark.parametrize("plan", [name for name in PLANS if name not in ("native_fft",)])
@pytest.mark.parametrize("kind", MAPS)
def test_every_plan_but_forced_transforms(plan, kind):
    """`native_fft` is for measurements: its errors are relative to the whole map."""
    if plan.startswith("native") and unavailable() is not None:
        pytest.skip(f"no kernels: {unavailable()}")
    assert_within(excess(Grid.of((17, 13), scope=9), plan, values=kind))


@needs_kernels
def test_forced_transforms_do_not():
    """So that the tests above can fail."""
    assert excess(GRIDS["local"], "native_fft", values="1e6 in 1e-3")["y"] > 1e3
    assert excess(GRIDS["local"], "native_fft", dy="1e6 in 1e-3")["dvalues"] > 1e3


@needs_kernels
@pytest.mark.parametrize("instructions", ["baseline", "avx2", "avx512"])
@pytest.mark.parametrize("kind", ["1e6 in 1e-3", "1e6 in 1e-6", "smooth with outliers", "sparse"])
def test_every_instruction_set(instructions, kind):
    before = instruction_set()
    if not use_instruction_set(instructions):
        pytest.skip(f"this machine does not run {instructions}")
    try:
        assert_within(excess(GRIDS["local"], "native", values=kind, v=5, k=3, u=2))
        assert_within(excess(GRIDS["local"], "native", dy=kind, v=5, k=3, u=2))
    finally:
        use_instruction_set(before)


@pytest.mark.parametrize("case", range(1000 if SWEEP else 60))
def test_random_hostile_cases(default_plan, case):
    generator = torch.Generator().manual_seed(1000 + case)

    def pick(choices):
        choices = list(choices)
        return choices[torch.randint(len(choices), (), generator=generator)]

    size = (pick(range(9, 60)), pick(range(9, 60))) if pick([True, True, False]) else (pick(range(60, 900)),)
    scope = tuple(
        pick([r for r in (9, 11, 15, 23, 31, 63) if r < 2 * n + 9]) * (1 if len(size) == 2 else 5) for n in size
    )
    scope = tuple(r + 1 - r % 2 for r in scope)
    kinds = {name: pick(MAPS) for name in ("values", "q", "dy")} | {"table": pick(TABLES)}
    sizes = {"b": pick([1, 2]), "h": pick([1, 2, 4]), "k": pick([1, 3, 4]), "v": pick([1, 5, 8]), "u": pick([1, 2])}
    found = excess(Grid.of(size, scope=scope), default_plan, seed=case, **kinds, **sizes)
    if support.unavailable() is not None:  # plain sums of constants drift: the worst of 1,000 cases was 3.6
        found = {name: ratio / 4 for name, ratio in found.items()}
    assert_within(found)


@pytest.mark.parametrize("plan", [None, "native_direct", "convolution", "query_first"])
@pytest.mark.parametrize("kind", ["constant", "150 in a constant"])
@pytest.mark.parametrize("grid", [Grid.of((21, 21), scope=(9, 23)), Grid.of((40, 40), scope=23)], ids=str)
def test_sums_of_equal_numbers_drift_no_further(grid, kind, plan):
    """The exception that the docs state: rounding errors of equal sign. With all other inputs the bound holds."""
    if plan == "native_direct" and unavailable() is not None:
        pytest.skip(f"no kernels: {unavailable()}")
    most = 2 if plan == "native_direct" or (plan is None and unavailable() is None) else 13
    found = excess(grid, plan, values=kind, table=kind, h=1, k=1)
    assert max(found.values()) <= most


@pytest.mark.parametrize("plan", ["fft", "native"])
def test_gradients_that_are_differentiated_again_keep_the_bound(plan):
    """Outliers, zeros and NaN, when the backward pass makes a graph of its own."""
    if plan == "native" and unavailable() is not None:
        pytest.skip(f"no kernels: {unavailable()}")
    grid = GRIDS["local"]

    def run(tensors, dy, plan, *, create_graph):
        leaves = [t.detach().clone().requires_grad_() for t in tensors]
        y = position_term(*leaves, grid, plan=plan)
        found = torch.autograd.grad(y, leaves, dy, create_graph=create_graph)
        return {"y": y.detach(), **{name: g.detach() for name, g in zip(NAMES, found, strict=True)}}

    for values, given in (("1e6 in 1e-3", "normal"), ("normal", "1e6 in 1e-3"), ("sparse", "sparse")):
        q, v, table, dy = operands(grid, torch.float32, values=values, dy=given)
        exact = run([t.double() for t in (q, v, table)], dy.double(), "convolution", create_graph=False)
        bounds = Bounds(q, v, table, dy, grid)
        found = run((q, v, table), dy, plan, create_graph=True)
        assert_within(bounds.excess(found, exact))
        assert not found["dq"][bounds.seen == 0].any()
    dy[0, 300] = torch.nan
    touched = torch.zeros(2, grid.n)
    touched[0, 300] = 1
    found = run((q, v, table), dy, plan, create_graph=True)
    assert found["dvalues"][windows(touched, grid) == 0].isfinite().all()


@pytest.mark.parametrize("kind", ["sparse", "one position", "block in zeros", "zeros"])
def test_zeros_stay_exact(default_plan, kind):
    """Outputs whose windows are all zero are, and so are gradients that nothing reaches."""
    grid = GRIDS["local"]
    q, values, table, dy = operands(grid, torch.float32, values=kind, dy=kind)
    bounds = Bounds(q, values, table, dy, grid)
    found = with_gradients((q, values, table), dy, grid, default_plan)
    assert (bounds.seen == 0).any()
    assert (bounds.reached == 0).any()
    assert not found["y"][bounds.seen == 0].any()
    assert not found["dq"][bounds.seen == 0].any()
    assert not found["dvalues"][bounds.reached == 0].any()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_nan_and_inf_stay_in_their_windows(default_plan, bad):
    """And in their example; what they do not reach is what it would be without them."""
    grid = GRIDS["local"]
    q, values, table, dy = operands(grid, torch.float32, b=3)
    clean = with_gradients((q, values, table), dy, grid, default_plan)
    place = 7 * grid.context[1] + 9
    values[1, place] = bad
    touched = torch.zeros(3, grid.m)
    touched[1, place] = 1
    seen = windows(touched, grid) > 0
    found = with_gradients((q, values, table), dy, grid, default_plan)
    assert not found["y"][seen].isfinite().any()
    assert found["y"][~seen].isfinite().all()
    assert torch.equal(found["y"][[0, 2]], clean["y"][[0, 2]])
    assert (found["y"] - clean["y"])[~seen].abs().max() < 1e-4
    assert found["dvalues"].isfinite().all()  # of a term that is linear in the values
    assert not found["dtable"].isfinite().any()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_nan_and_inf_in_a_gradient_stay_in_their_windows(default_plan, bad):
    grid = GRIDS["local"]
    q, values, table, dy = operands(grid, torch.float32, b=2)
    dy[0, 300] = bad
    touched = torch.zeros(2, grid.n)
    touched[0, 300] = 1
    reached = windows(touched, grid) > 0
    found = with_gradients((q, values, table), dy, grid, default_plan)
    assert not found["dvalues"][reached].isfinite().any()
    assert found["dvalues"][~reached].isfinite().all()
