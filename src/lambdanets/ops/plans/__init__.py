"""Exact ways to compute the position term, one file each, and the choice between them."""

from lambdanets.ops.plans.choose import PLANS, choose
from lambdanets.ops.plans.plan import Plan
from lambdanets.ops.plans.problem import Cost, Inputs, Problem

__all__ = ["PLANS", "Cost", "Inputs", "Plan", "Problem", "choose"]
