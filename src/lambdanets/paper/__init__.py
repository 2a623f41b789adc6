"""The paper's tables, recomputed: published figures, our figures, and whether they agree."""

from lambdanets.paper.entries import PublishedEntry, Verdict
from lambdanets.paper.tables import regenerate

__all__ = ["PublishedEntry", "Verdict", "regenerate"]
