"""What a network costs: parameters and FLOPs, counted as the paper counts them."""

from lambdanets.cost.count import Count, count, totals

__all__ = ["Count", "count", "totals"]
