"""What passes through a lambda layer on its way to the two terms."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lambdanets.nn.receptive_field import ReceptiveField


class LayerInputs(NamedTuple):
    """The rows of channels that queries, keys and values come from, and who may look where."""

    asking: Float[Tensor, "b n d"]
    tokens: Float[Tensor, "b m e"]  # the same tensor, if every position asks and is looked at
    counted: Bool[Tensor, "#b n"] | None  # the queries that count in batch statistics, None for all
    field: ReceptiveField


class TermInputs(NamedTuple):
    """The inputs of the two terms, in full precision."""

    q: Float[Tensor, "b n h k"]
    keys: Float[Tensor, "b m k u"] | None
    values: Float[Tensor, "b m v u"]
    field: ReceptiveField
    dtype: torch.dtype  # of the projections, and so of the output
