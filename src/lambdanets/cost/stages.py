"""Costs of a network by stage, before and after a change."""

from collections.abc import Sequence

from lambdanets.cost.count import Count, totals


def stage_of(name: str) -> str:
    """The part of a network that a module belongs to: its first level, and below `stages` each of those.

    >>> stage_of("layer1.0.conv2"), stage_of("stages.2.0.middle"), stage_of("fc")
    ('layer1', 'stages.2', 'fc')
    """
    parts = name.split(".")
    return ".".join(parts[: 2 if parts[0] == "stages" else 1])


def by_stage(counts: Sequence[Count]) -> dict[str, tuple[int, int]]:
    """Parameters and FLOPs of every stage, in order."""
    stages: dict[str, list[Count]] = {}
    for entry in counts:
        stages.setdefault(stage_of(entry.name), []).append(entry)
    return {stage: totals(entries) for stage, entries in stages.items()}


def before_and_after(before: Sequence[Count], after: Sequence[Count]) -> str:
    """A table of both, one row for each stage."""
    old, new = by_stage(before), by_stage(after)
    rows = {**{stage: (old.get(stage, (0, 0)), new.get(stage, (0, 0))) for stage in {**old, **new}}}
    rows["total"] = (totals(before), totals(after))
    lines = [f"{'':12}{'parameters, M':>16}{'FLOPs, G':>18}"]
    for stage, ((p, f), (q, g)) in rows.items():
        parameters, flops = f"{p / 1e6:.2f} -> {q / 1e6:.2f}", f"{f / 1e9:.2f} -> {g / 1e9:.2f}"
        lines.append(f"{stage:12}{parameters:>16}{flops:>18}")
    return "\n".join(lines)
