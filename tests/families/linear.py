"""Attention in linear time."""

import torch

from families.case import Case
from lambdanets.nn.attention.double import Double2d, DoubleMixer
from lambdanets.nn.attention.efficient import Efficient2d, EfficientMixer
from lambdanets.nn.attention.linear import Linear2d, LinearMixer
from lambdanets.nn.attention.projected import Projected2d, ProjectedMixer
from lambdanets.ops.attention.reference import linear as reference


def all_pairs(x, context, mask):
    return torch.ones(len(x), x.shape[1], context.shape[1], dtype=torch.bool) if mask is None else mask


def linear(x, context, weights, mask, case):
    mask, causal = all_pairs(x, context, mask), case.arguments.get("causal", False)
    h = case.arguments["h"]
    return reference.linear_attention(x, context, weights, h=h, mask=mask, causal=causal, prefix="heads.")


def efficient(x, context, weights, mask, case):
    mask = all_pairs(x, context, mask)
    return reference.gather_and_distribute(x, context, weights, h=case.arguments["h"], mask=mask, prefix="heads.")


def double(x, context, weights, mask, case):
    mask = all_pairs(x, context, mask)
    return reference.gather_and_distribute(x, context, weights, h=1, mask=mask, prefix="heads.", out="out")


def projected(x, context, weights, mask, case):
    size, mask = case.context_grid or case.grid, all_pairs(x, context, mask)
    return reference.projected_attention(
        x, context, weights, h=case.arguments["h"], context_size=size, mask=mask, prefix="heads."
    )


TOKENS = {"grid": (11,)}
CASES = [
    Case("plain", Linear2d, linear, {"h": 2, "k": 3}),
    Case("causal", Linear2d, linear, {"h": 5, "causal": True}),
    Case("padding", Linear2d, linear, {"h": 2}, mask="rows"),
    Case("cross padding", Linear2d, linear, {"h": 2}, context_grid=(4, 6), mask="rows"),
    Case("plain", LinearMixer, linear, {"h": 5, "bias": True}, **TOKENS),
    Case("causal in chunks", LinearMixer, linear, {"h": 2, "k": 3, "causal": True}, grid=(37,)),
    Case("causal padding", LinearMixer, linear, {"h": 2, "causal": True, "bias": True}, grid=(19,), mask="rows"),
    Case("cross, no projection", LinearMixer, linear, {"h": 2, "project_out": False}, context_grid=(7,), **TOKENS),
    Case("plain", Efficient2d, efficient, {"h": 2, "k": 3}),
    Case("padding", Efficient2d, efficient, {"h": 5}, mask="rows"),
    Case("cross", Efficient2d, efficient, {"h": 2}, context_grid=(4, 6)),
    Case("plain", EfficientMixer, efficient, {"h": 2, "bias": True}, **TOKENS),
    Case("cross padding", EfficientMixer, efficient, {"h": 5, "bias": True}, context_grid=(7,), mask="rows", **TOKENS),
    Case("plain", Double2d, double, {"k": 3, "v": 2}),
    Case("padding", Double2d, double, {"k": 3, "v": 5, "bias": True}, mask="rows"),
    Case("cross", Double2d, double, {}, context_grid=(4, 6), width=13),
    Case("cross padding", DoubleMixer, double, {"k": 3, "v": 2}, context_grid=(7,), mask="rows", **TOKENS),
    Case("plain", Projected2d, projected, {"h": 2, "k": 3, "rank": 3, "size": (5, 3)}),
    Case("smaller map", Projected2d, projected, {"h": 2, "rank": 4, "size": (7, 5)}),
    Case("cross padding", Projected2d, projected, {"h": 5, "rank": 4, "size": 7}, context_grid=(4, 6), mask="rows"),
    Case("plain", ProjectedMixer, projected, {"h": 2, "rank": 3, "size": 13, "bias": True}, **TOKENS),
    Case("padding", ProjectedMixer, projected, {"h": 2, "rank": 3, "size": 11, "bias": True}, mask="rows", **TOKENS),
    Case("cross", ProjectedMixer, projected, {"h": 5, "rank": 3, "size": 7}, context_grid=(7,), **TOKENS),
]
