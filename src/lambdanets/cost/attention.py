"""Multiply-adds of attention layers, in addition to those of the convolutions and linear maps inside them.

Scores and weighted sums count, with every context position that a query sees; softmaxes and gates do not. As for lambda
layers, windows are not cut at the borders of the map.
"""

import math

from torch import Size

from lambdanets.cost.multiplies import multiply_adds
from lambdanets.nn.attention.augmented import Augmented2d
from lambdanets.nn.attention.axial import Along
from lambdanets.nn.attention.double import DoubleAttention
from lambdanets.nn.attention.efficient import EfficientAttention
from lambdanets.nn.attention.global_attention import Attention
from lambdanets.nn.attention.linear import LinearAttention
from lambdanets.nn.attention.local import Local
from lambdanets.nn.attention.projected import ProjectedAttention
from lambdanets.nn.attention.relation import Relation2d
from lambdanets.nn.attention.vector import Vector2d
from lambdanets.nn.context_layer import ContextLayer
from lambdanets.nn.layout import OnTokens


def grid_of(layer: ContextLayer, x: Size) -> Size:
    return x[1:-1] if isinstance(layer, OnTokens) else x[2:]


def positions(layer: ContextLayer, x: Size) -> int:
    return math.prod(grid_of(layer, x))


@multiply_adds.register
def _(module: Attention, x: Size, context: Size, y: Size) -> int:
    heads, m = module.heads, positions(module, context)
    offsets = 0 if module.offsets is None else sum(grid_of(module, x))  # one score for each offset of each axis
    return x[0] * positions(module, x) * heads.h * (m * (heads.k + heads.v) + offsets * heads.k)


@multiply_adds.register
def _(module: Augmented2d, x: Size, context: Size, y: Size) -> int:
    return multiply_adds(module.attention, x, context, y)  # its parts are called without the module itself


@multiply_adds.register
def _(module: Along, x: Size, context: Size, y: Size) -> int:
    heads, line = module.heads, x[1 + module.axis]
    depth = heads.k + heads.v + (0 if module.offsets is None else heads.k)
    return math.prod(x[:-1]) * heads.h * line * depth


@multiply_adds.register
def _(module: Local, x: Size, context: Size, y: Size) -> int:
    heads = module.heads
    offsets = sum(module.scope) if len(module.offsets) else 0
    return x[0] * positions(module, x) * heads.h * (math.prod(module.scope) * (heads.k + heads.v) + offsets * heads.k)


@multiply_adds.register
def _(module: Relation2d, x: Size, context: Size, y: Size) -> int:
    groups = module.d_in // module.share
    return x[0] * positions(module, x) * math.prod(module.scope) * (module.k * groups + module.d_in)


@multiply_adds.register
def _(module: Vector2d, x: Size, context: Size, y: Size) -> int:
    window, groups = math.prod(module.scope), module.d_out // module.share
    if module.kind == "pairwise":
        weights = 2 * module.k**2 + window * module.k * groups
    else:
        weights = (1 + window) * module.k * groups + window * groups**2
    return x[0] * positions(module, x) * (weights + window * module.d_out)


@multiply_adds.register(EfficientAttention)
@multiply_adds.register(DoubleAttention)
def _(module: EfficientAttention | DoubleAttention, x: Size, context: Size, y: Size) -> int:
    """Each head computes and applies a lambda of k x v numbers."""
    heads = module.heads
    return x[0] * (positions(module, context) + positions(module, x)) * heads.h * heads.k * heads.v


@multiply_adds.register
def _(module: LinearAttention, x: Size, context: Size, y: Size) -> int:
    """The same with one more column, the normaliser."""
    heads = module.heads
    return x[0] * (positions(module, context) + positions(module, x)) * heads.h * heads.k * (heads.v + 1)


@multiply_adds.register
def _(module: ProjectedAttention, x: Size, context: Size, y: Size) -> int:
    """Keys and values are projected to fewer positions, then attended to."""
    heads, rank = module.heads, module.of_keys.weight.shape[0]
    return x[0] * (positions(module, context) + positions(module, x)) * rank * heads.h * (heads.k + heads.v)
