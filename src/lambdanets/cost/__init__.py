"""What a network costs: parameters and FLOPs, counted as the paper counts them, memory and time, measured."""

from lambdanets.cost.count import Count, count, totals, without_memory
from lambdanets.cost.profile import StageCost, profile
from lambdanets.cost.stages import before_and_after, by_stage

__all__ = ["Count", "StageCost", "before_and_after", "by_stage", "count", "profile", "totals", "without_memory"]
