"""What plans declare about themselves, and how one of them is chosen."""

from dataclasses import replace

import pytest
import torch

from compare import assert_close
from lambdanets.kernels import unavailable
from lambdanets.ops import Grid, content_lambda, content_term, lambda_terms, normalise_keys, position_term
from lambdanets.ops.plans import PLANS, Cost, Inputs, Problem, choose
from lambdanets.ops.plans.problem import ACCELERATOR, CPU

GRID = Grid.of((5, 7), scope=3)
able = pytest.mark.skipif(unavailable() is not None, reason=f"no kernels: {unavailable()}")


def operands(grid=GRID, b=2, h=3, k=2, v=5, u=2):
    shapes = ((b, grid.n, h, k), (b, grid.m, k, u), (b, grid.m, v, u), (grid.rows, k, u))
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


def problem(**changes):
    q, _, values, table = operands()
    return replace(Problem.of(Inputs(q, values, table, GRID)), **changes)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_plan_that_takes_content_adds_its_term(plan):
    q, keys, values, table = operands()
    inputs = Inputs(q, values, table, GRID)
    if plan.supports(Problem.of(inputs)) is not None or not plan.takes_content:
        return
    content = content_lambda(normalise_keys(keys), values)
    expected = content_term(q, keys, values) + position_term(q, values, table, GRID, plan="query_first")
    assert_close({"y": plan.run(replace(inputs, content=content))}, {"y": expected}, 1e-12)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_plan_chosen_before_is_taken_as_it_is(plan, monkeypatch):
    q, keys, values, table = operands()
    if plan.supports(Problem.of(Inputs(q, values, table, GRID))) is not None:
        return
    expected = lambda_terms(q, keys, values, table, GRID, plan="query_first")
    monkeypatch.setattr(type(plan), "supports", lambda *_: pytest.fail("asked again"))
    assert_close({"y": lambda_terms(q, keys, values, table, GRID, plan=plan)}, {"y": expected}, 1e-12)


def test_what_plans_are_for():
    everywhere = {name for name, plan in PLANS.items() if plan.devices is None}
    assert everywhere == {name for name, plan in PLANS.items() if plan.is_portable}
    assert any(PLANS[name].serves_all_sizes for name in everywhere)
    on_gpu = problem(device=torch.device("cuda"))
    assert {name for name, plan in PLANS.items() if plan.supports(on_gpu) is None} == everywhere
    assert all("cuda" in PLANS[name].supports(on_gpu) for name in PLANS.keys() - everywhere)


def test_costs_are_those_of_the_device():
    cost = Cost(multiplies=1e9, bytes=1e6, operations=10)
    for device, rates in (("cpu", CPU), ("cuda", ACCELERATOR), ("mps", ACCELERATOR)):
        expected = 1e9 * rates.multiply + 1e6 * rates.byte + 10 * rates.operation
        assert cost.seconds(torch.device(device)) == pytest.approx(expected)


@pytest.mark.parametrize("trains", [False, True])
def test_accelerators_have_a_plan_without_being_there(trains):
    chosen = choose(problem(device=torch.device("cuda"), trains=trains))
    assert chosen.supports(problem(device=torch.device("cuda"))) is None


@able
def test_kernels_count_for_themselves():
    """The cost of the automatic plan is that of the algorithm it will take."""
    large = Grid.of((56, 56), scope=23)
    for grid, fewer in ((GRID, "native_direct"), (large, "native_fft")):
        asked = problem(geometry=grid, n=grid.n, m=grid.m, h=4, k=16, v=16, u=1)
        costs = {name: PLANS[name].cost(asked).multiplies for name in ("native", "native_direct", "native_fft")}
        assert costs["native"] == costs[fewer] == min(costs.values())
