"""Figures of the tables, and their texts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["matches", "differs", "the paper's"]

TITLES = {
    2: "time and space of layers, in the letters of this library",
    3: "layers in a ResNet-50",
    4: "memory and speed of layers in a ResNet-50",
    5: "parameters at equal accuracy",
    6: "FLOPs at equal accuracy",
    7: "detection and segmentation on COCO",
    8: "content and position",
    9: "scope of the position lambdas",
    10: "normalisation",
    11: "query depth k, heads h and intra-depth u",
    12: "placement of lambda layers in the stages of a ResNet-50",
    13: "deeper networks: convolutions, squeeze-and-excitation, hybrids, lambdas",
}
QUANTITIES = {
    "params_M": "parameters, M",
    "flops_G": "FLOPs, G",
    "memory_GB": "memory, GB",
    "top1": "top-1, %",
    "throughput_ex_s": "throughput on TPUs, examples/s",
}


@dataclass(frozen=True)
class PublishedEntry:
    """A figure of a row: the published value, our value, and whether they agree."""

    table: int
    row: str
    quantity: str
    published: str  # as printed
    ours: float | str | None  # a number, or the counted formula for Table 2
    verdict: Verdict
    reason: str = ""  # why it differs, if known

    @property
    def quantity_in_words(self) -> str:
        return QUANTITIES.get(self.quantity, self.quantity.replace("_", " "))

    @property
    def ours_in_words(self) -> str | None:
        return f"{self.ours:.3f}" if isinstance(self.ours, float) else self.ours

    @property
    def verdict_in_words(self) -> str:
        return f"{self.verdict}: {self.reason}" if self.reason else self.verdict


def title(table: int) -> str:
    return f"Table {table}: {TITLES[table]}"


def summary(entries: Sequence[PublishedEntry]) -> str:
    """The number of matches, in one sentence."""
    formulas = [entry for entry in entries if isinstance(entry.ours, str)]
    figures = [entry for entry in entries if isinstance(entry.ours, float)]
    parts = []
    if figures:
        parts.append(f"{_matching(figures)} of {len(figures)} counted figures match to the printed digit")
    if formulas:
        parts.append(f"{_matching(formulas)} of {len(formulas)} formulas match counted operations")
    if len(figures) + len(formulas) < len(entries):
        parts.append("accuracies and TPU throughputs are the paper's and were not run here")
    return "; ".join(parts)


def _matching(entries: Iterable[PublishedEntry]) -> int:
    return sum(entry.verdict == "matches" for entry in entries)


def published(entries: Iterable[PublishedEntry], table: int, quantity: str) -> dict[str, float]:
    """Published values of a quantity, by row."""
    return {e.row: float(e.published) for e in entries if (e.table, e.quantity) == (table, quantity)}


def ours(entries: Iterable[PublishedEntry], table: int, quantity: str) -> dict[str, float]:
    """Our values of a quantity, by row."""
    these = (e for e in entries if (e.table, e.quantity) == (table, quantity))
    return {e.row: e.ours for e in these if isinstance(e.ours, float)}
