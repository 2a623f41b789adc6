"""Which plan computes a position term: the one forced, or the cheapest of those that can."""

from dataclasses import replace
from functools import lru_cache

import torch

from lambdanets.compat import is_exporting, is_tracing, is_transformed
from lambdanets.ops.geometry import Grid
from lambdanets.ops.plans.convolution import Convolution
from lambdanets.ops.plans.fourier import Fourier
from lambdanets.ops.plans.lambda_first import LambdaFirst
from lambdanets.ops.plans.native import NATIVE
from lambdanets.ops.plans.plan import Plan
from lambdanets.ops.plans.problem import Problem
from lambdanets.ops.plans.query_first import QueryFirst

PLANS: dict[str, Plan] = {plan.name: plan for plan in (Convolution(), Fourier(), LambdaFirst(), *NATIVE, QueryFirst())}


def choose(problem: Problem, forced: str | Plan | None = None) -> Plan:
    """The plan for a problem; forcing one by name that does not support it is a ValueError with the reason.

    A `Plan` was chosen before, for the same problem, and is returned as it is.
    """
    if isinstance(forced, Plan):
        return forced
    if forced is not None and forced not in PLANS:
        raise ValueError(f"plan must be one of {', '.join(map(repr, PLANS))}, got plan={forced!r}")
    if isinstance(problem.geometry, Grid) and not torch.compiler.is_compiling() and not is_transformed():
        return _kept_choice(problem, forced)
    return _choice(problem, forced)  # no cache holds symbolic sizes, nor should it hold the tensor of a relation


def _choice(problem: Problem, forced: str | None) -> Plan:
    if is_tracing():  # torch traces twice, the second time without gradients, and wants the same graph
        problem = replace(problem, trains=False)
    if forced is not None and (PLANS[forced].is_portable or not is_exporting()):
        reason = PLANS[forced].supports(problem)
        if reason is not None:
            raise ValueError(f"plan={forced!r} cannot compute this: {reason}")
        return PLANS[forced]
    able = [plan for plan in PLANS.values() if plan.automatic(problem) and plan.supports(problem) is None]
    if torch.compiler.is_exporting():  # an exported program's choice cannot depend on a size that may be symbolic
        return next(plan for plan in able if plan.serves_all_sizes)
    seconds = [plan.seconds(problem) for plan in able]
    return able[seconds.index(min(seconds))]  # torch.compile cannot trace min with a key


_kept_choice = lru_cache(maxsize=1024)(_choice)
