"""Compares the native plan with a limit: its operations at the rate of a large matrix product.

A pair of a query and a context position in its window takes 2 h u (k + v) operations forward and 2 h u (3 k + 2 v)
backward, where the scores are recomputed. Fourier transforms need fewer, so they can exceed 100 %.
"""

from dataclasses import asdict, dataclass

import torch

from lambdanets.bench.gate import agree
from lambdanets.bench.job import CannotBenchmarkError, Job, Row, Track
from lambdanets.bench.machine import GEMM_SIDE, gemm, gemm_flops
from lambdanets.kernels import unavailable
from lambdanets.ops.geometry import Grid
from lambdanets.ops.plans import PLANS, Inputs
from lambdanets.timing import best_times


@dataclass(frozen=True)
class Settings:
    rounds: int = 15
    quick: bool = False


@dataclass(frozen=True)
class Term:
    """The position term of b square maps."""

    side: int
    k: int
    h: int
    v: int
    scope: int
    b: int = 4
    u: int = 1

    @property
    def pairs(self) -> int:
        """(query, context) pairs inside the maps, exactly."""
        reach = self.scope // 2
        along = sum(min(i + reach, self.side - 1) - max(i - reach, 0) + 1 for i in range(self.side))
        return self.b * along**2

    @property
    def forward_flops(self) -> int:
        return 2 * self.h * self.u * (self.k + self.v) * self.pairs

    @property
    def backward_flops(self) -> int:
        return 2 * self.h * self.u * (3 * self.k + 2 * self.v) * self.pairs


# The resolutions of a ResNet-50: v = d / 4.
RESOLUTIONS = tuple(Term(side, k=16, h=4, v=v, scope=23, b=8) for side, v in ((56, 16), (28, 32), (14, 64), (7, 128)))
# One parameter at a time, then corners.
SWEEP = (
    *(Term(28, k=k, h=4, v=32, scope=23) for k in (8, 16, 32)),
    *(Term(28, k=16, h=h, v=32, scope=23) for h in (1, 2, 8)),
    *(Term(28, k=16, h=4, v=v, scope=23) for v in (8, 16, 64, 128, 256)),
    *(Term(28, k=16, h=4, v=32, scope=scope) for scope in (3, 7, 63)),
    *(Term(56, k=16, h=4, v=16, scope=scope) for scope in (3, 7, 63)),
    *(Term(14, k=16, h=4, v=64, scope=scope) for scope in (3, 7, 23)),
    Term(56, k=8, h=8, v=8, scope=7),
    Term(56, k=32, h=2, v=64, scope=23),
    Term(14, k=8, h=1, v=256, scope=23),
    Term(14, k=32, h=8, v=16, scope=7),
)
QUICK = (Term(7, k=16, h=4, v=16, scope=7, b=2), Term(14, k=8, h=2, v=8, scope=3, b=2))


def jobs(settings: Settings) -> list[Job]:
    reason = unavailable()
    if reason is not None:
        raise CannotBenchmarkError(f"the native plan is not available: {reason}")
    side = 512 if settings.quick else GEMM_SIDE
    terms = QUICK if settings.quick else RESOLUTIONS + SWEEP
    return [job(term, settings.rounds, side) for term in terms]


def job(term: Term, rounds: int, gemm_side: int) -> Job:
    def run(track: Track) -> Row:
        grid, plan = Grid.of((term.side, term.side), scope=term.scope), PLANS["native"]
        shapes = ((term.b, grid.n, term.h, term.k), (term.b, grid.m, term.v, term.u), (grid.rows, term.k, term.u))
        q, values, table = (torch.randn(shape) for shape in shapes)
        leaves = [t.clone().requires_grad_() for t in (q, values, table)]
        y = plan.run(Inputs(leaves[0], leaves[1], leaves[2], grid))
        part = slice(0, 1)  # of the batch, because checking all of it would take longer than the benchmark
        agree({"native": y[part], "fft": PLANS["fft"].run(Inputs(q[part], values[part], table, grid))}, "fft")
        cotangent = torch.randn_like(y)
        runs = {
            "gemm": gemm(gemm_side),
            "forward": lambda: plan.run(Inputs(q, values, table, grid)),
            "backward": lambda: torch.autograd.grad(y, leaves, cotangent, retain_graph=True),
        }
        best = best_times(runs, track(range(rounds)))
        rate = gemm_flops(gemm_side) / best["gemm"]
        return {
            **asdict(term),
            "pairs": term.pairs,
            "gemm_gflops": rate / 1e9,
            "forward_ms": 1e3 * best["forward"],
            "backward_ms": 1e3 * best["backward"],
            "forward_percent": 100 * term.forward_flops / rate / best["forward"],
            "backward_percent": 100 * term.backward_flops / rate / best["backward"],
        }

    return Job(f"{term.side} x {term.side}, scope {term.scope}, k {term.k}, h {term.h}, v {term.v}", rounds, run)
