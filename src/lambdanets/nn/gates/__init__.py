"""Gates: layers that scale what is there by what the whole context says. As lambdas they are diagonal."""

from lambdanets.nn.gates.bam import BAM2d
from lambdanets.nn.gates.cbam import CBAM2d
from lambdanets.nn.gates.film import FiLM2d, FiLMMixer
from lambdanets.nn.gates.squeeze import SqueezeExcitation, SqueezeExcitation2d, SqueezeExcitationMixer

__all__ = [
    "BAM2d",
    "CBAM2d",
    "FiLM2d",
    "FiLMMixer",
    "SqueezeExcitation",
    "SqueezeExcitation2d",
    "SqueezeExcitationMixer",
]
