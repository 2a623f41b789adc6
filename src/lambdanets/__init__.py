"""Lambda layers for PyTorch: every position reads its whole context through a small linear map made from it.

`lambdanets.ops` holds the mathematics as pure functions, `lambdanets.nn` the layers, `lambdanets.models` the networks;
layers and `create_model` are exported here.
"""

from lambdanets import models, nn, ops
from lambdanets.interop import adopt, lambdafy
from lambdanets.models import create_model, list_models
from lambdanets.nn import (
    Attention2d,
    AttentionMixer,
    LambdaLayer1d,
    LambdaLayer2d,
    LambdaLayer3d,
    LambdaMixer,
    create_layer,
    list_layers,
)

__version__ = "0.1.0"

__all__ = [
    "Attention2d",
    "AttentionMixer",
    "LambdaLayer1d",
    "LambdaLayer2d",
    "LambdaLayer3d",
    "LambdaMixer",
    "__version__",
    "adopt",
    "create_layer",
    "create_model",
    "lambdafy",
    "list_layers",
    "list_models",
    "models",
    "nn",
    "ops",
]
