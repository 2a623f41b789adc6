"""Gradient checkpointing: a block keeps its inputs only, and runs again in the backward pass."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lambdanets.compat import is_transformed
from lambdanets.nn.norms import frozen_statistics


def checkpointed(block: nn.Module, *inputs: Tensor | None) -> Any:
    """`block(*inputs)`; its batch norms count a batch once, though they see it twice.

    The transforms of `torch.func` do not support checkpoints: under them the block runs once and keeps everything.
    """
    if is_transformed():
        return block(*inputs)

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), frozen_statistics(block)

    return checkpoint(block, *inputs, use_reentrant=False, context_fn=contexts)
