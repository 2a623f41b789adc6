"""Is anybody interested in the calls of a module? Then it must be called, and nothing may be done in its stead."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.modules import module as torch_module
from torch.utils.hooks import RemovableHandle


def has_listeners(module: nn.Module) -> bool:
    """Hooks of its own or of all modules, or a `forward` that replaces that of its class."""
    # Written out, as every layer asks this several times in every pass.
    hooked = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    return bool(hooked) or "forward" in vars(module) or all_have_listeners()


def all_have_listeners() -> bool:
    """Hooks of all modules."""
    of_forward = torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks
    return bool(of_forward or torch_module._global_backward_hooks or torch_module._global_backward_pre_hooks)


def first_of(inputs: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """What a call was given first, with its name or without; None if it was given nothing."""
    return next(iter((*inputs, *named.values())), None)


@contextmanager
def for_a_while(hooks: Sequence[RemovableHandle]) -> Iterator[None]:
    """Afterwards these hooks are gone."""
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
