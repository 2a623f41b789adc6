"""What a network costs: parameters and FLOPs, counted as the paper counts them."""

from lambdanets.cost.count import Count, count, totals, without_memory
from lambdanets.cost.stages import before_and_after, by_stage

__all__ = ["Count", "before_and_after", "by_stage", "count", "totals", "without_memory"]
