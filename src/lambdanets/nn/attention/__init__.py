"""The attention family as layers, each on maps and on tokens where both make sense."""

from lambdanets.nn.attention.augmented import Augmented2d
from lambdanets.nn.attention.axial import Axial2d
from lambdanets.nn.attention.double import Double2d, DoubleMixer
from lambdanets.nn.attention.efficient import Efficient2d, EfficientMixer
from lambdanets.nn.attention.global_attention import Attention2d, AttentionMixer
from lambdanets.nn.attention.linear import Linear2d, LinearMixer
from lambdanets.nn.attention.local import Local2d, LocalMixer
from lambdanets.nn.attention.positions import AbsolutePositions
from lambdanets.nn.attention.projected import Projected2d, ProjectedMixer
from lambdanets.nn.attention.relation import Relation2d
from lambdanets.nn.attention.vector import Vector2d

__all__ = [
    "AbsolutePositions",
    "Attention2d",
    "AttentionMixer",
    "Augmented2d",
    "Axial2d",
    "Double2d",
    "DoubleMixer",
    "Efficient2d",
    "EfficientMixer",
    "Linear2d",
    "LinearMixer",
    "Local2d",
    "LocalMixer",
    "Projected2d",
    "ProjectedMixer",
    "Relation2d",
    "Vector2d",
]
