"""Networks made of the layers: variants are rows of a table, `create_model` builds one by name."""

from lambdanets.models.checkpoint import CheckpointError
from lambdanets.models.middle import Lambda, Middle, Place, convolution
from lambdanets.models.registry import create_model, list_models
from lambdanets.models.resnet import ResNet, ResNetConfig

__all__ = [
    "CheckpointError",
    "Lambda",
    "Middle",
    "Place",
    "ResNet",
    "ResNetConfig",
    "convolution",
    "create_model",
    "list_models",
]
