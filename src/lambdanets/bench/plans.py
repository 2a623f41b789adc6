"""Checks the cost model: times the chosen plan and all others that support a problem."""

import math
from dataclasses import dataclass, replace

import torch

from lambdanets.bench.gate import agree
from lambdanets.bench.job import Job, Row, Track
from lambdanets.bench.passes import PASSES, Pass, Run
from lambdanets.ops.geometry import Causal, Grid
from lambdanets.ops.plans import PLANS, Inputs, Problem, choose
from lambdanets.timing import best_times, one_time

# A choice is bad if its time exceeds that of the best plan by this factor.
BAD = 1.3
# A plan that takes this many times as long as the best in one run is not timed again.
FAR = 3


@dataclass(frozen=True)
class Settings:
    rounds: int = 5
    patience: float = 3.0
    quick: bool = False


@dataclass(frozen=True)
class Case:
    """A position term on maps; a scope of None is global."""

    size: tuple[int, ...]
    scope: int | None
    k: int = 16
    h: int = 4
    v: int = 16
    u: int = 1
    b: int = 4
    stride: int = 1
    causal: Causal = False

    def grid(self) -> Grid:
        scope = tuple(2 * n - 1 for n in self.size) if self.scope is None else self.scope
        return Grid.of(self.size, scope=scope, stride=self.stride, causal=self.causal)

    def label(self) -> str:
        parts = [" x ".join(map(str, self.size)), f"scope {self.scope or 'global'}"]
        parts += [f"{name} {getattr(self, name)}" for name in ("k", "h", "v", "b")]
        parts += [f"{name} {getattr(self, name)}" for name in ("u", "stride") if getattr(self, name) > 1]
        return ", ".join(parts + ["causal"] * bool(self.causal))


MAP = Case((28, 28), 23, v=32)
LINE = Case((1024,), 65)
CASES = (
    *(Case((side, side), scope, v=v) for side, v in ((56, 16), (28, 32), (14, 64), (7, 128)) for scope in (7, 23)),
    *(Case((side, side), None, v=v) for side, v in ((28, 32), (14, 64), (7, 128))),
    Case((64, 64), None, b=1),
    Case((32, 48), 31, b=1),
    *(replace(MAP, scope=scope) for scope in (1, 3)),
    *(replace(MAP, h=h, v=128 // h) for h in (1, 8)),
    *(replace(MAP, k=k) for k in (4, 64)),
    replace(MAP, v=128),
    *(replace(MAP, u=4, scope=scope) for scope in (7, 23)),
    replace(MAP, stride=2),
    replace(MAP, causal=True),
    *(replace(LINE, scope=scope) for scope in (7, 65, 513, None)),
    replace(LINE, size=(8192,), b=1),
    replace(LINE, size=(16384,), scope=None, b=1),
    *(replace(LINE, causal=True, scope=scope) for scope in (65, None)),
    # Unusual cases: small windows and maps, long sequences, more heads than depth.
    *(Case((side, side), 3, v=v) for side, v in ((56, 16), (14, 64), (7, 128))),
    Case((3, 3), None, b=1),
    Case((96, 96), None, b=1),
    replace(LINE, size=(4096,), scope=None, b=1),
    replace(LINE, h=32, v=2),
    *(replace(MAP, h=h, v=128 // h, k=k) for h, k in ((32, 16), (16, 4), (64, 4))),
)
QUICK = (Case((7, 7), 3, b=2), Case((31,), None, b=2, causal=True))


def jobs(settings: Settings) -> list[Job]:
    cases = QUICK if settings.quick else CASES
    return [job(case, pass_, settings) for case in cases for pass_ in PASSES]


def job(case: Case, pass_: Pass, settings: Settings) -> Job:
    trains = pass_ == "training"

    def run(track: Track) -> Row:
        grid = case.grid()
        shapes = ((case.b, grid.n, case.h, case.k), (case.b, grid.m, case.v, case.u), (grid.rows, case.k, case.u))
        # Scaled, because sums of standard normal numbers over whole maps would be unrealistically large.
        q, values, table = (torch.randn(shape) / math.sqrt(shape[1]) for shape in shapes)
        leaves = [t.requires_grad_(trains) for t in (q, values, table)]
        inputs = Inputs(q, values, table, grid)
        problem = Problem.of(inputs)
        chosen = choose(problem).name
        able = {name: plan for name, plan in PLANS.items() if plan.supports(problem) is None}
        predicted = {name: plan.seconds(problem) for name, plan in able.items()}

        def timed(name: str) -> Run:
            def once() -> object:
                y = able[name].run(inputs)
                return torch.autograd.grad(y, leaves, torch.ones_like(y)) if trains else y

            return once

        # Predictions exclude plans that would take minutes. Plans that are far slower in one run are not timed again.
        tried = {name: timed(name) for name in able if name == chosen or predicted[name] <= settings.patience}
        answers = {name: able[name].run(inputs).detach() for name in tried}
        agree(answers, chosen)
        once = {name: one_time(run) for name, run in tried.items()}
        close = {name: run for name, run in tried.items() if once[name] <= FAR * min(once.values()) or name == chosen}
        best = {**once, **best_times(close, track(range(settings.rounds)))}
        fastest = min(best, key=lambda name: best[name])
        return {
            "case": case.label(),
            "pass": pass_,
            "chosen": chosen,
            "best": fastest,
            "ratio": best[chosen] / best[fastest],
            "ms": {name: 1e3 * t for name, t in best.items()},
            "predicted_ms": {name: 1e3 * t for name, t in predicted.items()},
            "not_tried": sorted(able.keys() - tried.keys()),
        }

    return Job(f"{case.label()}, {pass_}", settings.rounds, run)


def bad_choices(rows: list[Row]) -> int:
    return sum(row["ratio"] > BAD for row in rows)
