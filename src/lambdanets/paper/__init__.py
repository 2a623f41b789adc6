"""The paper's tables, regenerated: what it prints, what the rules of this library give, and whether they agree."""

from lambdanets.paper.entries import PublishedEntry, Verdict
from lambdanets.paper.tables import regenerate

__all__ = ["PublishedEntry", "Verdict", "regenerate"]
