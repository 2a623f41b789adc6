"""Is anybody interested in the calls of a module? Then it must be called, and nothing may be done in its stead."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import nn
from torch.nn.modules import module as torch_module
from torch.utils.hooks import RemovableHandle

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def has_listeners(module: nn.Module) -> bool:
    """Hooks of its own or of all modules, or a `forward` that replaces that of its class."""
    hooked = any(getattr(module, name) or getattr(torch_module, f"_global{name}") for name in HOOKS)
    return hooked or "forward" in vars(module)


@contextmanager
def for_a_while(hooks: Sequence[RemovableHandle]) -> Iterator[None]:
    """Afterwards these hooks are gone."""
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
