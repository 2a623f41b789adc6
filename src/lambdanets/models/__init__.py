"""Networks made of the layers: variants are rows of a table, `create_model` builds one by name."""

from lambdanets.models.checkpoint import CheckpointError
from lambdanets.models.from_torch import from_torch
from lambdanets.models.middle import Lambda, Middle, Place, convolution
from lambdanets.models.mixers import Mixer
from lambdanets.models.pretrained import load_model
from lambdanets.models.registry import Network, create_model, list_models
from lambdanets.models.resnet import ResNet, ResNetConfig
from lambdanets.models.transformer import (
    DecoderBlock,
    EncoderBlock,
    EncoderDecoder,
    Transformer,
    TransformerDecoder,
)
from lambdanets.models.vit import ViT, ViTConfig
from lambdanets.models.vit_weights import vit_weights

__all__ = [
    "CheckpointError",
    "DecoderBlock",
    "EncoderBlock",
    "EncoderDecoder",
    "Lambda",
    "Middle",
    "Mixer",
    "Network",
    "Place",
    "ResNet",
    "ResNetConfig",
    "Transformer",
    "TransformerDecoder",
    "ViT",
    "ViTConfig",
    "convolution",
    "create_model",
    "from_torch",
    "list_models",
    "load_model",
    "vit_weights",
]
