"""The kernels as torch operators, `torch.ops.lambdanets.*`, with what compile, export and autograd need to know.

Grids have one or two axes, given as lists of integers; those of one axis have a first of 1.
"""

from lambdanets.kernels.operators.batch_norm import batch_norm
from lambdanets.kernels.operators.definitions import COMPOSITIONS, gradients_of
from lambdanets.kernels.operators.layer import infer, layer
from lambdanets.kernels.operators.position import position_term
from lambdanets.kernels.operators.rectified_norm import rectified_norm, rectify
from lambdanets.kernels.operators.rectified_norms import rectified_norms

__all__ = [
    "COMPOSITIONS",
    "batch_norm",
    "gradients_of",
    "infer",
    "layer",
    "position_term",
    "rectified_norm",
    "rectified_norms",
    "rectify",
]
