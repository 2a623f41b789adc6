"""Whether a module has hooks or a patched forward, which fused paths must not bypass; and hooks for a while."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from lambdanets.compat import has_global_hooks


def has_hooks(module: nn.Module) -> bool:
    """Whether the module itself or all modules have hooks, or an instance attribute replaces its class's `forward`."""
    # Written out, as every layer asks this several times in every pass.
    own = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    return bool(own) or "forward" in module.__dict__ or has_global_hooks()


def first_argument(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The first argument of a call, positional or by keyword; None if there is none."""
    return next(iter((*args, *kwargs.values())), None)


@contextmanager
def temporary_hooks(handles: Sequence[RemovableHandle]) -> Iterator[None]:
    """Remove these hooks on exit."""
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
