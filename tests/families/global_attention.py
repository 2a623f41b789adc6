"""Attention over all positions."""

import torch

from families.case import Case
from lambdanets.nn.attention.global_attention import Attention2d, AttentionMixer
from lambdanets.ops.attention.reference import pairs


def oracle(x, context, weights, mask, case):
    a = {"h": 4, "causal": False, "positions": "none", **case.arguments}
    b, n, m = len(x), x.shape[1], context.shape[1]
    axes = range(len(case.grid)) if a["positions"] == "relative" else ()
    return pairs.attention(
        x,
        context,
        weights,
        h=a["h"],
        g=a.get("g") or a["h"],
        size=case.grid,
        context_size=case.context_grid or case.grid,
        mask=torch.ones(b, n, m, dtype=torch.bool) if mask is None else mask,
        causal=a["causal"],
        tables=[f"offsets.tables.{axis}.weight" for axis in axes],
        prefix="heads.",
    )


RELATIVE = {"h": 2, "positions": "relative", "size": 7}
TOKENS = {"grid": (11,)}
CASES = [
    Case("plain", Attention2d, oracle, {"h": 2}),
    Case("relative", Attention2d, oracle, {**RELATIVE, "k": 3}),
    Case("relative causal", Attention2d, oracle, {**RELATIVE, "causal": True}),
    Case("multiquery", Attention2d, oracle, {**RELATIVE, "g": 1}),
    Case("relative padding", Attention2d, oracle, RELATIVE, mask="rows"),
    Case("relative cross masked", Attention2d, oracle, RELATIVE, context_grid=(4, 6), mask="pairs"),
    Case("plain", AttentionMixer, oracle, {"h": 5, "bias": True}, **TOKENS),
    Case("one head, no projection", AttentionMixer, oracle, {"h": 1, "project_out": False}, **TOKENS),
    Case("multiquery", AttentionMixer, oracle, {"h": 5, "g": 1, "k": 3}, **TOKENS),
    Case("causal", AttentionMixer, oracle, {"h": 2, "causal": True}, **TOKENS),
    Case("causal padding", AttentionMixer, oracle, {"h": 2, "causal": True}, mask="rows", **TOKENS),
    Case("masked", AttentionMixer, oracle, {"h": 2}, mask="pairs", **TOKENS),
    Case("cross", AttentionMixer, oracle, {"h": 2}, context_grid=(7,), **TOKENS),
    Case("cross masked", AttentionMixer, oracle, {"h": 2}, context_grid=(7,), mask="pairs", **TOKENS),
    Case("relative", AttentionMixer, oracle, {"h": 2, "positions": "relative", "size": 13}, **TOKENS),
]
