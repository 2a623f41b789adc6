"""Loads items from files, data sets and streams as batches, independent of networks and tasks."""

from lambdanets.data.batches import Batch, Collate, Skip, ToExample
from lambdanets.data.batching import Batching, FixedSize, UnitBudget
from lambdanets.data.config import DataConfig
from lambdanets.data.data import Data, Splits
from lambdanets.data.loader import Loader, Position, Share
from lambdanets.data.seeds import mixed, seeded
from lambdanets.data.splits import BadItemError, DataError, Item, Split, SplitName, Stream, Subset, first

__all__ = [
    "BadItemError",
    "Batch",
    "Batching",
    "Collate",
    "Data",
    "DataConfig",
    "DataError",
    "FixedSize",
    "Item",
    "Loader",
    "Position",
    "Share",
    "Skip",
    "Split",
    "SplitName",
    "Splits",
    "Stream",
    "Subset",
    "ToExample",
    "UnitBudget",
    "first",
    "mixed",
    "seeded",
]
