"""Lambda layers and the attention family for PyTorch.

`lambdanets.ops` holds the mathematics as pure functions, `lambdanets.nn` the layers, `lambdanets.models` the networks;
layers and `create_model` are exported here. Everything is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_PACKAGES = ("cost", "interop", "kernels", "models", "nn", "ops")
_HOMES = {"adopt": "interop", "lambdafy": "interop", "create_model": "models", "list_models": "models"}  # others: nn


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"lambdanets.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'lambdanets' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"lambdanets.{_HOMES.get(name, 'nn')}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
