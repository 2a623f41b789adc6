"""Layers that look along lines or at windows."""

import torch

from families.case import Case
from lambdanets.nn.attention.augmented import Augmented2d
from lambdanets.nn.attention.axial import Axial2d
from lambdanets.nn.attention.local import Local2d, LocalMixer
from lambdanets.nn.attention.relation import Relation2d
from lambdanets.nn.attention.vector import Vector2d
from lambdanets.ops.attention.reference import pairs, windows


def everything(x, mask):
    return torch.ones(len(x), x.shape[1], x.shape[1], dtype=torch.bool) if mask is None else mask


def per_axis(scope, axes):
    return (scope,) * axes if isinstance(scope, int) else scope


def axial(x, context, weights, mask, case):
    relative = case.arguments.get("positions", "relative") == "relative"
    h = case.arguments.get("h", 4)
    return windows.axial(x, weights, h=h, size=case.grid, mask=everything(x, mask), relative=relative)


def local(x, context, weights, mask, case):
    a = {"h": 4, "scope": 7, "causal": False, "positions": "relative", **case.arguments}
    axes = range(len(case.grid))
    return pairs.attention(
        x,
        x,
        weights,
        h=a["h"],
        g=a["h"],
        size=case.grid,
        context_size=case.grid,
        mask=everything(x, mask) & windows.window(case.grid, per_axis(a["scope"], len(axes))),
        causal=a["causal"],
        tables=[f"offsets.{axis}.weight" for axis in axes] if a["positions"] == "relative" else [],
        prefix="heads.",
    )


def augmented(x, context, weights, mask, case):
    return windows.augmented(x, weights, h=case.arguments["h"], size=case.grid, mask=everything(x, mask))


def relation(x, context, weights, mask, case):
    a = {"scope": 7, "share": 8, **case.arguments}
    scope = per_axis(a["scope"], 2)
    return windows.relation(x, weights, scope=scope, share=a["share"], size=case.grid, mask=everything(x, mask))


def vector(x, context, weights, mask, case):
    a = {"scope": 7, "share": 8, "kind": "patchwise", **case.arguments}
    oracle = windows.vector_pairwise if a["kind"] == "pairwise" else windows.vector_patchwise
    scope = per_axis(a["scope"], 2)
    return oracle(x, weights, scope=scope, share=a["share"], size=case.grid, mask=everything(x, mask))


TOKENS = {"grid": (11,)}
SAME = {"out": 6}
CASES = [
    Case("relative", Axial2d, axial, {"h": 2, "size": (5, 3)}),
    Case("projected", Axial2d, axial, {"h": 5, "k": 3, "size": 7, "project_out": True}),
    Case("no positions", Axial2d, axial, {"h": 2, "positions": "none"}),
    Case("padding", Axial2d, axial, {"h": 2, "size": 7}, mask="rows"),
    Case("window over the map", Local2d, local, {"h": 2}),
    Case("tiles", Local2d, local, {"h": 2, "k": 3, "scope": 3}, grid=(17, 5)),
    Case("oblong", Local2d, local, {"h": 2, "scope": (1, 5)}, grid=(2, 13)),
    Case("causal", Local2d, local, {"h": 2, "scope": 3, "causal": True}, grid=(5, 11)),
    Case("padding", Local2d, local, {"h": 2, "scope": 3}, mask="rows", grid=(11, 3)),
    Case("no positions", Local2d, local, {"h": 2, "scope": 3, "positions": "none"}),
    Case("plain", LocalMixer, local, {"h": 5, "scope": 5}, grid=(31,)),
    Case("causal", LocalMixer, local, {"h": 2, "scope": 7, "causal": True}, grid=(31,)),
    Case("causal padding", LocalMixer, local, {"h": 2, "scope": 3, "causal": True}, mask="rows", **TOKENS),
    Case("wide, no projection", LocalMixer, local, {"h": 1, "scope": 29, "project_out": False}, **TOKENS),
    Case("plain", Augmented2d, augmented, {"h": 2, "upsilon": 0.4, "size": 7}),
    Case("padding", Augmented2d, augmented, {"h": 3, "upsilon": 0.6, "kappa": 0.9, "size": 5}, mask="rows"),
    Case("scalars", Relation2d, relation, {"share": 3, "scope": 3}, **SAME),
    Case("window over the map", Relation2d, relation, {"share": 2, "k": 3}, **SAME),
    Case("oblong", Relation2d, relation, {"share": 1, "scope": (1, 5)}, grid=(2, 7), **SAME),
    Case("padding", Relation2d, relation, {"share": 2, "scope": 3}, mask="rows", **SAME),
    Case("pairwise", Vector2d, vector, {"kind": "pairwise", "share": 5, "scope": 3}),
    Case("pairwise oblong", Vector2d, vector, {"kind": "pairwise", "share": 2, "k": 7, "scope": (3, 5)}, grid=(1, 7)),
    Case("pairwise padding", Vector2d, vector, {"kind": "pairwise", "share": 5, "scope": 3}, mask="rows"),
    Case("patchwise", Vector2d, vector, {"share": 5, "scope": 3}),
    Case("patchwise oblong", Vector2d, vector, {"share": 2, "k": 7, "scope": (3, 5)}, grid=(1, 7)),
    Case("patchwise padding", Vector2d, vector, {"share": 5, "scope": 3}, mask="rows"),
]
