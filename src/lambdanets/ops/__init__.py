"""The mathematics: pure functions on tensors, with no parameters and no modules.

The letters are the paper's, the same in shapes, einsum strings and names:
b batch, n query positions, m context positions, h queries sharing a lambda, k query and key depth, v value depth,
u intra-depth, p rows of a table of relative embeddings.
"""

from lambdanets.ops.content import apply_lambda, content_lambda, content_term
from lambdanets.ops.geometry import Grid, Relation, embeddings, relative_index, resize_table
from lambdanets.ops.keys import normalise_keys
from lambdanets.ops.pairs import position_lambda
from lambdanets.ops.position import embedded_position_term, position_term
from lambdanets.ops.terms import lambda_terms

__all__ = [
    "Grid",
    "Relation",
    "apply_lambda",
    "content_lambda",
    "content_term",
    "embedded_position_term",
    "embeddings",
    "lambda_terms",
    "normalise_keys",
    "position_lambda",
    "position_term",
    "relative_index",
    "resize_table",
]
