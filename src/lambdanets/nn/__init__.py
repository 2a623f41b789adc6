"""Layers: parameters, projections and initialisation around the functions of `lambdanets.ops`."""

from lambdanets.nn.intermediates import LambdaIntermediates
from lambdanets.nn.lambda_layers import LambdaLayer, LambdaLayer1d, LambdaLayer2d, LambdaLayer3d, LambdaMixer
from lambdanets.nn.tables import RelationTable, RelativeTable

__all__ = [
    "LambdaIntermediates",
    "LambdaLayer",
    "LambdaLayer1d",
    "LambdaLayer2d",
    "LambdaLayer3d",
    "LambdaMixer",
    "RelationTable",
    "RelativeTable",
]
