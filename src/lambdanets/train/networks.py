"""The network of a configuration, without memory."""

from typing import Any

import torch

from lambdanets.models import Network, create_model
from lambdanets.train.config import ConfigError, ModelConfig


def on_meta(model: ModelConfig, **more: Any) -> Network:
    """As the section `model.` describes it, whose fields precede those in `more`; ConfigError if none can be built."""
    try:
        with torch.device("meta"):
            return create_model(model.name, **{**more, **model.changes})
    except (ValueError, TypeError, RuntimeError) as error:  # the last two are torch's for sizes that no tensor has
        raise ConfigError(f"model: {str(error).partition(chr(10))[0]}") from error
