"""Whether a module has hooks or a patched forward, which fused paths must not bypass; and hooks for a while."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from lambdanets.compat import has_global_hooks


def has_hooks(*modules: nn.Module) -> bool:
    """Whether one of them, or all modules, have hooks, or an instance attribute replaces a class's `forward`."""
    for module in modules:  # written out, as every layer asks this in every pass
        if module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__:
            return True
        if module._backward_hooks or module._backward_pre_hooks:
            return True
    return has_global_hooks()


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
