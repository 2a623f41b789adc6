"""The entries of each comparison: changes to the same small network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lambdanets.nn import list_layers


@dataclass(frozen=True)
class Entry:
    """`changes` are fields of `ResNetConfig`; `published` is the closest row of the paper's tables."""

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    published: tuple[int, str] | None = None


# Windows of 23 x 23, or 7 x 7 if u > 1, as in the paper, instead of those of a recipe.
AS_IN_THE_PAPER = {"scope": "auto"}
# The rows of layers in Tables 3 and 4.
IN_THE_PAPER = {
    "attention": (4, "global self-attention"),
    "axial": (4, "axial self-attention"),
    "local": (3, "local relative self-attention (Ramachandran)"),
    "augmented": (3, "conv + relative self-attention"),
    "relation": (3, "local relative self-attention (Hu)"),
    "vector": (3, "local relative self-attention (Zhao)"),
}
GATES = ("squeeze", "film", "bam", "cbam")
# The paper puts these after the convolution, not in its place: gates alone do not mix positions.
BEHIND_A_CONVOLUTION: dict[str, tuple[int, str] | None] = {
    "squeeze": (3, "conv + channel attention (SE)"),
    "double": (3, "conv + double attention"),
    "efficient": (3, "conv + efficient attention"),
    **dict.fromkeys(GATES[1:]),
}


def layers() -> list[Entry]:
    """Every layer of the family, and the convolution."""
    entries = [
        Entry("convolution", {"placement": "CCCC"}, (3, "conv")),
        Entry("lambda", AS_IN_THE_PAPER, (3, "lambda")),
        Entry("lambda 7x7", {"scope": 7}, (4, "lambda convolution 7x7")),
    ]
    for name in list_layers("maps"):
        if name == "lambda":
            continue
        if name in BEHIND_A_CONVOLUTION:
            behind = f"convolution+{name}"
            entries.append(Entry(behind, {"layer": behind}, BEHIND_A_CONVOLUTION[name]))
        if name not in GATES:
            entries.append(Entry(name, {"layer": name}, IN_THE_PAPER.get(name)))
    return entries


def terms() -> list[Entry]:
    rows = {"content": "content", "position": "position", "both": "content and position"}
    return [Entry(row, {"terms": term, **AS_IN_THE_PAPER}, (8, row)) for term, row in rows.items()]


def scopes() -> list[Entry]:
    return [
        *(Entry(f"{side}x{side}", {"scope": side}, (9, f"{side}x{side}")) for side in (3, 7, 15, 23, 31)),
        Entry("global", {"scope": None}, (9, "global")),
    ]


def norms() -> list[Entry]:
    options = {
        "softmax keys": {"key_norm": "softmax"},
        "L2 keys": {"key_norm": "l2"},
        "unnormalised keys": {"key_norm": "none"},
        "no batch norm on queries and values": {"norm": "none"},
    }
    return [Entry(row, {"layer_options": its, **AS_IN_THE_PAPER}, (10, row)) for row, its in options.items()]


def depths() -> list[Entry]:
    """Without h = 16, which does not divide the width of the first stage of a small network."""
    sizes = [(k, h, 1) for h in (4, 8) for k in (2, 4, 8, 16, 32)] + [(8, 2, 1), (8, 8, 4), (8, 8, 8), (16, 4, 4)]
    rows = {f"k={k} h={h} u={u}": {"k": k, "h": h, "u": u, **AS_IN_THE_PAPER} for k, h, u in sizes}
    return [Entry(row, changes, (11, row)) for row, changes in rows.items()]


def distinct(entries: Sequence[Entry], image_size: int) -> list[Entry]:
    """Remove windows that cover the whole map, if there is a global entry, which is the same network.

    >>> [entry.name for entry in distinct(scopes(), 8)]
    ['3x3', '7x7', 'global']
    """
    if not any("scope" in entry.changes and entry.changes["scope"] is None for entry in entries):
        return list(entries)
    widest = 2 * image_size - 1
    return [entry for entry in entries if (entry.changes.get("scope") or 0) < widest]


# Functions, because the layers are known only after all of them have been imported.
CONTESTS = {"layers": layers, "terms": terms, "scopes": scopes, "norms": norms, "depths": depths}
