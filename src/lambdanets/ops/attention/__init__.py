"""The attention family: pure functions on tensors, in the letters of `lambdanets.ops`.

A layer maps queries (q_n, n) and a context {(c_m, m)} to y_n. Contract the depth of the query first and you have
attention; contract the context positions first and you have a lambda.
"""

from lambdanets.ops.attention.attend import attend, weighted
from lambdanets.ops.attention.constructions import convolution_as_attention, fully_connected_as_attention
from lambdanets.ops.attention.dictionary import look_up
from lambdanets.ops.attention.double import gather_and_distribute
from lambdanets.ops.attention.linear import linear_attention
from lambdanets.ops.attention.positions import (
    relative_embeddings,
    relative_scores,
    relative_values,
    sinusoidal_codes,
)
from lambdanets.ops.attention.scores import (
    additive_scores,
    cosine_scores,
    dot_scores,
    general_scores,
    scaled_dot_scores,
)
from lambdanets.ops.attention.softargmax import hard_attention_map, hardargmax, softargmax

__all__ = [
    "additive_scores",
    "attend",
    "convolution_as_attention",
    "cosine_scores",
    "dot_scores",
    "fully_connected_as_attention",
    "gather_and_distribute",
    "general_scores",
    "hard_attention_map",
    "hardargmax",
    "linear_attention",
    "look_up",
    "relative_embeddings",
    "relative_scores",
    "relative_values",
    "scaled_dot_scores",
    "sinusoidal_codes",
    "softargmax",
    "weighted",
]
