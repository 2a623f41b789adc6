"""Which plan a layer's position term takes on an input, and what each would cost."""

from dataclasses import dataclass
from functools import partial

import torch

from lambdanets.ops.geometry import Grid
from lambdanets.ops.plans import PLANS, Inputs, Problem, choose
from lambdanets.timing import best_time


@dataclass(frozen=True)
class PlanCost:
    """One plan for one input: the reason why it cannot serve, or seconds predicted and measured."""

    name: str
    chosen: bool
    reason: str | None
    predicted: float | None
    measured: float | None

    def __str__(self) -> str:
        mark = "->" if self.chosen else "  "
        if self.reason is not None:
            return f"{mark} {self.name:<13} cannot: {self.reason}"
        assert self.predicted is not None
        measured = "not measured" if self.measured is None else f"measured {1e3 * self.measured:9.2f} ms"
        return f"{mark} {self.name:<13} predicted {1e3 * self.predicted:9.2f} ms, {measured}"


@dataclass(frozen=True)
class Explanation:
    """All plans for one input, and the one that is taken."""

    plans: tuple[PlanCost, ...]

    @property
    def chosen(self) -> str:
        return next(plan.name for plan in self.plans if plan.chosen)

    def __str__(self) -> str:
        return "\n".join(map(str, self.plans))


def explain_position_term(
    grid: Grid,
    b: int,
    h: int,
    k: int,
    v: int,
    u: int,
    *,
    plan: str | None,
    training: bool,
    patience: float,
) -> Explanation:
    """Predict every plan's cost, and measure those that are predicted to take less than `patience` seconds."""
    shapes = ((b, grid.n, h, k), (b, grid.m, v, u), (grid.rows, k, u))
    q, values, table = (torch.randn(shape, requires_grad=training) for shape in shapes)
    with torch.set_grad_enabled(training):
        inputs = Inputs(q, values, table, grid)
        problem = Problem.of(inputs)
        chosen = choose(problem, plan)

        def run(name: str) -> None:
            y = PLANS[name].run(inputs)
            if training:
                torch.autograd.grad(y, [q, values, table], torch.ones_like(y))

        costs = []
        for name, each in PLANS.items():
            reason = each.supports(problem)
            predicted = None if reason is not None else each.seconds(problem)
            measured = None if predicted is None or predicted > patience else best_time(partial(run, name))
            costs.append(PlanCost(name, each is chosen, reason, predicted, measured))
    return Explanation(tuple(costs))
