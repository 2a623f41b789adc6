"""The network of a configuration."""

from collections.abc import Mapping
from typing import Any

import torch

from lambdanets.models import Network, create_model
from lambdanets.train.config import ConfigError, ModelConfig


def build_network(model: ModelConfig, decided: Mapping[str, Any]) -> Network:
    """Build the network of the section `model.`, with keyword arguments from the data; ConfigError if impossible."""
    for name, value in decided.items():
        if model.changes.get(name, value) != value:
            raise ConfigError(f"model.{name}={model.changes[name]}, but the data has {value}")
    try:
        return create_model(model.name, **{**decided, **model.changes})
    except (ValueError, TypeError, RuntimeError) as error:  # torch raises the last two for impossible sizes
        raise ConfigError(f"model: {str(error).partition(chr(10))[0]}") from error


def network_on_meta(model: ModelConfig, decided: Mapping[str, Any]) -> Network:
    """Build the network without memory, on the meta device."""
    with torch.device("meta"):
        return build_network(model, decided)
