"""The paper's tables, regenerated: what it prints, what the rules of this library give, and whether they agree."""

from lambdanets.paper.tables import Entry, Verdict, regenerate

__all__ = ["Entry", "Verdict", "regenerate"]
