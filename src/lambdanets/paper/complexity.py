"""Table 2: time and space complexity of layers, checked against counted operations and elements.

A formula is a sum of terms in the letters of this library: d is the paper's value depth, r the window of a lambda
convolution, u the intra-depth of its appendix. Each term is compared with a count: the multiply-adds of a function by
torch's counter, the elements of a tensor, or the rule of `lambdanets.cost` for a whole layer. One letter at a time is
tripled, and the power with which the count grows must be the exponent of that letter in the term, or zero.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Size, Tensor
from torch.utils.flop_counter import FlopCounterMode

from lambdanets.cost.multiplies import multiply_adds
from lambdanets.nn import LambdaLayer1d
from lambdanets.ops.content import content_lambda
from lambdanets.ops.geometry import Grid, embeddings
from lambdanets.ops.pairs import position_lambda
from lambdanets.ops.plans.convolution import convolved_lambdas
from lambdanets.paper.entries import PublishedEntry

Sizes = Mapping[str, int]
Make = Callable[[Sizes], Tensor]
Count = Callable[[Sizes], int]

LETTERS = "bnmrhkdu"
# Tripled, a window stays odd.
GROWTH = 3
# Tensors on the meta device need no memory, so sizes can be so large that the leading term dominates.
SIZES: tuple[Sizes, ...] = (
    {"b": 2, "n": 100_003, "m": 80_021, "r": 20_001, "h": 2, "k": 16, "d": 72, "u": 3},
    {"b": 5, "n": 200_003, "m": 300_007, "r": 50_001, "h": 4, "k": 8, "d": 120, "u": 2},
)


@dataclass(frozen=True)
class Law:
    """A formula of the table: its terms, each with the counts to check it."""

    layer: str
    quantity: Literal["time", "space"]
    terms: Mapping[str, tuple[Count, ...]]

    @property
    def formula(self) -> str:
        return f"Θ({' + '.join(self.terms)})"


def multiplies(make: Make) -> Count:
    """Count the multiply-adds of a function."""

    def count(s: Sizes) -> int:
        with FlopCounterMode(display=False) as counter:
            make(s)
        total: int = counter.get_total_flops()
        return total // 2

    return count


def numbers(make: Make) -> Count:
    """Count the elements of a function's result."""
    return lambda s: make(s).numel()


def empty(s: Sizes, letters: str) -> Tensor:
    """A tensor on the meta device with an axis for each letter, where v = d / h."""
    sizes = {**s, "v": s["d"] // s["h"]}
    return torch.empty([sizes[letter] for letter in letters], device="meta")


def attention_map(s: Sizes) -> Tensor:
    return torch.einsum("bnhk,bmhk->bhnm", empty(s, "bnhk"), empty(s, "bmhk"))


def attention_output(s: Sizes) -> Tensor:
    return torch.einsum("bhnm,bmhv->bnhv", empty(s, "bhnm"), empty(s, "bmhv"))


def linear_attention(s: Sizes) -> Tensor:
    """Self-attention that contracts keys and values first, in each head."""
    summaries = torch.einsum("bnhk,bnhv->bhkv", empty(s, "bnhk"), empty(s, "bnhv"))
    return torch.einsum("bnhk,bhkv->bnhv", empty(s, "bnhk"), summaries)


def content(s: Sizes) -> Tensor:
    return content_lambda(empty(s, "bmku"), empty(s, "bmvu"))


def everywhere(s: Sizes) -> tuple[Tensor, Grid, Tensor]:
    """A table for all offsets between queries and a separate context, its grid, and all queries."""
    offsets = 2 * max(s["n"], s["m"]) - 1
    grid = Grid((s["m"],), (s["n"],), (offsets,), (1,), (1,))
    return empty({**s, "p": offsets}, "pku"), grid, torch.arange(s["n"], device="meta")


def embedded(s: Sizes) -> Tensor:
    return embeddings(*everywhere(s))


def position_lambdas(s: Sizes) -> Tensor:
    return position_lambda(empty(s, "bmvu"), *everywhere(s))


def layer(s: Sizes, scope: int | None) -> LambdaLayer1d:
    with torch.device("meta"):
        return LambdaLayer1d(s["d"], k=s["k"], h=s["h"], u=s["u"], scope=scope, size=s["m"])


def window(s: Sizes) -> Tensor:
    """The table of a lambda convolution."""
    table = layer(s, s["r"]).table
    assert table is not None
    return table.weight


def window_lambdas(s: Sizes) -> Tensor:
    return convolved_lambdas(empty(s, "bnvu"), window(s), Grid.of((s["n"],), scope=s["r"]))


def whole_layer(s: Sizes) -> int:
    """By the rule of `lambdanets.cost`: projections, both terms, both applications."""
    context, queries = (Size((s["b"], s["d"], s[letter])) for letter in "mn")
    return multiply_adds(layer(s, None), queries, context, queries)


def whole_convolution(s: Sizes) -> int:
    maps = Size((s["b"], s["d"], s["n"]))  # which are their own context
    return multiply_adds(layer(s, s["r"]), maps, maps, maps)


LAWS = (
    Law(
        "self-attention",
        "time",
        {"b n m h k": (multiplies(attention_map),), "b n m d": (multiplies(attention_output),)},
    ),
    Law("self-attention", "space", {"b n m h": (numbers(attention_map),)}),
    Law("linear attention", "time", {"b n k d": (multiplies(linear_attention),)}),
    Law("lambda layer", "time", {"b n m k d u / h": (multiplies(position_lambdas), whole_layer)}),
    Law("lambda layer", "space", {"n m k u": (numbers(embedded),), "b n k d / h": (numbers(position_lambdas),)}),
    Law("lambda layer, content alone", "time", {"b m k d u / h": (multiplies(content),)}),
    Law("lambda convolution", "time", {"b n r k d u / h": (multiplies(window_lambdas), whole_convolution)}),
    Law("lambda convolution", "space", {"r k u": (numbers(window),), "b n k d / h": (numbers(window_lambdas),)}),
)


def exponents(term: str) -> dict[str, float]:
    """
    >>> exponents("b n k / h")
    {'b': 1.0, 'n': 1.0, 'k': 1.0, 'h': -1.0}
    """
    above, _, below = term.partition("/")
    powers = Counter(above.split())
    powers.subtract(below.split())
    return {letter: float(power) for letter, power in powers.items()}


def growth(count: Count, s: Sizes) -> dict[str, float]:
    """The power with which a count grows in each letter that it depends on."""
    before = count(s)
    powers = {}
    for letter in LETTERS:
        after = count({**s, letter: GROWTH * s[letter]})
        powers[letter] = round(math.log(after / before, GROWTH), 2)
    return {letter: power for letter, power in powers.items() if power}


def in_letters(powers: Mapping[str, float]) -> str:
    """
    >>> in_letters({"b": 1.0, "n": 2.0, "h": -1.0})
    'b n^2 / h'
    """

    def product(sign: int) -> str:
        factors = {letter: sign * power for letter, power in powers.items() if sign * power > 0}
        return " ".join(letter if power == 1 else f"{letter}^{power:g}" for letter, power in factors.items())

    below = product(-1)
    return f"{product(1)} / {below}" if below else product(1)


def check(law: Law) -> PublishedEntry:
    """Compare a formula with its counts; if some disagree, `ours` is the first that differs."""
    found = []
    for term, counts in law.terms.items():
        expected = exponents(term)
        grown = [growth(count, s) for count in counts for s in SIZES]
        found.append(next((powers for powers in grown if powers != expected), expected))
    right = found == [exponents(term) for term in law.terms]
    ours = " + ".join(map(in_letters, found))
    return PublishedEntry(2, law.layer, law.quantity, law.formula, ours, "matches" if right else "differs")
