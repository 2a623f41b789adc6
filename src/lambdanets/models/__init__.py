"""Networks made of the layers; `create_model` builds one by name."""

from lambdanets.models.checkpoint import CheckpointError
from lambdanets.models.families import FAMILIES, Family
from lambdanets.models.from_torch import from_torch
from lambdanets.models.images import ImageClassifier, ImageConfig
from lambdanets.models.middle import Lambda, Middle, Place, convolution
from lambdanets.models.mixers import Mixer
from lambdanets.models.network import Network, NetworkConfig
from lambdanets.models.pretrained import load_model
from lambdanets.models.registry import create_model, list_models
from lambdanets.models.resnet import ResNet
from lambdanets.models.resnet_config import ResNetConfig
from lambdanets.models.transformer import EncoderDecoder, Transformer, TransformerDecoder
from lambdanets.models.transformer_blocks import DecoderBlock, EncoderBlock
from lambdanets.models.vit import ViT
from lambdanets.models.vit_config import ViTConfig
from lambdanets.models.vit_weights import vit_weights

__all__ = [
    "FAMILIES",
    "CheckpointError",
    "DecoderBlock",
    "EncoderBlock",
    "EncoderDecoder",
    "Family",
    "ImageClassifier",
    "ImageConfig",
    "Lambda",
    "Middle",
    "Mixer",
    "Network",
    "NetworkConfig",
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
