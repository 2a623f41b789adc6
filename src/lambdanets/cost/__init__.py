"""The cost of a network: parameters and FLOPs, counted by the paper's rules, and measured memory and time."""

from lambdanets.cost.count import Count, count, totals, without_memory
from lambdanets.cost.profile import StageCost, profile
from lambdanets.cost.stages import before_and_after, by_stage

__all__ = ["Count", "StageCost", "before_and_after", "by_stage", "count", "profile", "totals", "without_memory"]
