"""Multiply-adds of one layer, by the paper's rules.

Convolutions, linear maps and lambda layers count, and so does the average pool that gives a lambda layer its stride.
Batch norms, activations, softmax, other pools and additions do not. A position lambda counts as many context positions
as its window or the map has, whichever is less: borders are not subtracted.
"""

import math
from functools import singledispatch

from torch import Size, nn

from lambdanets.models.middle import Strided
from lambdanets.nn import LambdaLayer
from lambdanets.nn.layout import OnTokens
from lambdanets.nn.tables import RelativeTable


@singledispatch
def multiply_adds(module: nn.Module, x: Size, context: Size, y: Size) -> int:
    """Multiply-adds of one call, from inputs of shapes x and context to an output of shape y, without its children.

    The context is x where a call has no other; most modules ignore it.
    """
    return 0


@multiply_adds.register(nn.ConvTranspose1d)
@multiply_adds.register(nn.ConvTranspose2d)
@multiply_adds.register(nn.ConvTranspose3d)
def _(module: nn.ConvTranspose2d, x: Size, context: Size, y: Size) -> int:
    return math.prod(x) * module.out_channels // module.groups * math.prod(module.kernel_size)


@multiply_adds.register
def _(module: nn.Linear, x: Size, context: Size, y: Size) -> int:
    return math.prod(y) * module.in_features


@multiply_adds.register(nn.Conv1d)
@multiply_adds.register(nn.Conv2d)
@multiply_adds.register(nn.Conv3d)
def _(module: nn.Conv2d, x: Size, context: Size, y: Size) -> int:
    return math.prod(y) * module.in_channels // module.groups * math.prod(module.kernel_size)


@multiply_adds.register(nn.RNNBase)
@multiply_adds.register(nn.RNNCellBase)
def _(module: nn.RNNBase | nn.RNNCellBase, x: Size, context: Size, y: Size) -> int:
    tokens = math.prod(x) // module.input_size
    return tokens * sum(weight.numel() for weight in module.parameters() if weight.ndim == 2)


@multiply_adds.register
def _(module: nn.MultiheadAttention, x: Size, context: Size, y: Size) -> int:
    """Its projections count here, because it does not call its child."""
    d: int = module.embed_dim
    d_context: int = module.kdim + module.vdim
    tokens = -2 if module.batch_first else 0  # the axis of tokens, with and without a batch
    n, m = x[tokens], context[tokens]
    b = math.prod(x) // (n * d)
    return b * (2 * n * d * d + m * d_context * d + 2 * n * m * d)


@multiply_adds.register
def _(module: Strided, x: Size, context: Size, y: Size) -> int:
    return 9 * math.prod(y)  # the average; the layer inside counts itself


@multiply_adds.register
def _(module: LambdaLayer, x: Size, context: Size, y: Size) -> int:
    """The projections are children, but count here: the layer may compute them as one product."""
    on_tokens = isinstance(module, OnTokens)
    m, n = (shape[1] if on_tokens else math.prod(shape[2:]) for shape in (context, y))
    b = x[0]
    k, h, u, v = module.k, module.h, module.u, module.v
    total = n * module.d_in * h * k + m * module.d_context * v * u
    if module.key is not None:
        total += m * module.d_context * k * u + m * k * v * u + n * h * k * v
    if module.table is not None:
        window = module.table.weight.shape[0] if isinstance(module.table, RelativeTable) else m
        total += n * min(window, m) * k * v * u + n * h * k * v
    return b * total
