"""Layers: parameters, projections and initialisation around the functions of `lambdanets.ops`."""

from lambdanets.nn.attention import (
    AbsolutePositions,
    Attention2d,
    AttentionMixer,
    Augmented2d,
    Axial2d,
    Double2d,
    DoubleMixer,
    Efficient2d,
    EfficientMixer,
    Linear2d,
    LinearMixer,
    Local2d,
    LocalMixer,
    Projected2d,
    ProjectedMixer,
    Relation2d,
    Vector2d,
)
from lambdanets.nn.gates import (
    BAM2d,
    CBAM2d,
    FiLM2d,
    FiLMMixer,
    SqueezeExcitation2d,
    SqueezeExcitationMixer,
)
from lambdanets.nn.intermediates import LambdaIntermediates
from lambdanets.nn.lambda_layer import LambdaLayer
from lambdanets.nn.lambda_layers import (
    LambdaLayer1d,
    LambdaLayer2d,
    LambdaLayer3d,
    LambdaMixer,
)
from lambdanets.nn.registry import create_layer, list_layers
from lambdanets.nn.tables import RelationTable, RelativeTable

__all__ = [
    "AbsolutePositions",
    "Attention2d",
    "AttentionMixer",
    "Augmented2d",
    "Axial2d",
    "BAM2d",
    "CBAM2d",
    "Double2d",
    "DoubleMixer",
    "Efficient2d",
    "EfficientMixer",
    "FiLM2d",
    "FiLMMixer",
    "LambdaIntermediates",
    "LambdaLayer",
    "LambdaLayer1d",
    "LambdaLayer2d",
    "LambdaLayer3d",
    "LambdaMixer",
    "Linear2d",
    "LinearMixer",
    "Local2d",
    "LocalMixer",
    "Projected2d",
    "ProjectedMixer",
    "Relation2d",
    "RelationTable",
    "RelativeTable",
    "SqueezeExcitation2d",
    "SqueezeExcitationMixer",
    "Vector2d",
    "create_layer",
    "list_layers",
]
