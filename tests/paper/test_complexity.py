"""The formulas of Table 2 are what is counted, and a wrong one would be noticed."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lambdanets import LambdaLayer1d
from lambdanets.cost import count, totals
from lambdanets.paper import regenerate
from lambdanets.paper.complexity import LAWS, SIZES, Law, check, growth, multiplies, numbers, position_lambdas
from lambdanets.paper.complexity import whole_layer as rule


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.layer}, {law.quantity}")
def test_counts_grow_as_the_formula_says(law):
    entry = check(law)
    assert entry.verdict == "matches"
    assert entry.published == f"Θ({entry.ours})"


@pytest.mark.parametrize("wrong", ["b n m k d / h", "b n m k d u", "n m k d u / h", "b n n m k d u / h"])
def test_a_wrong_formula_differs(wrong):
    """Too few letters, too many, or another power; by either of the two counts."""
    for counted in (multiplies(position_lambdas), rule):
        entry = check(Law("lambda layer", "time", {wrong: (counted,)}))
        assert (entry.verdict, entry.ours) == ("differs", "b n m k d u / h")


def test_one_wrong_count_of_two_differs():
    entry = check(Law("lambda layer", "time", {"b n m k d u / h": (rule, numbers(position_lambdas))}))
    assert (entry.verdict, entry.ours) == ("differs", "b n k d / h")


def test_powers_need_not_be_whole():
    powers = growth(lambda s: round(s["n"] ** 1.5), SIZES[0])
    assert powers == {"n": 1.5}
    assert check(Law("axial", "space", {"n": (lambda s: round(s["n"] ** 1.5),)})).ours == "n^1.5"


@pytest.mark.parametrize(("scope", "plan"), [(None, "lambda_first"), (5, "convolution")])
def test_the_rules_are_what_torch_counts(scope, plan):
    """The rule for a whole layer, against the operations of a plan that computes lambdas as the paper does."""
    with torch.device("meta"):
        layer = LambdaLayer1d(12, k=3, h=2, u=5, scope=scope, size=11, plan=plan).eval()
        x = torch.empty(7, 12, 11)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer(x)
    assert totals(count(layer, x.shape))[1] == counter.get_total_flops()


def test_table_2_comes_first():
    assert [entry.row for entry in regenerate(2)] == [law.layer for law in LAWS]
