"""What the library asks of torch that has no, or no proper, public name; each with the reason."""

import torch
from torch import Tensor


def is_tracing() -> bool:
    """Whether TorchScript traces: public, but missing from torch's own list of names."""
    return bool(torch.jit.is_tracing())  # type: ignore[attr-defined]


def is_exporting() -> bool:
    """Whether a program is being made that others run: what it does cannot depend on a size or on gradients."""
    return torch.compiler.is_exporting() or is_tracing()


def is_transformed() -> bool:
    """Inside `torch.func` or forward-mode differentiation, which pass the kernels by: tangents would be lost.

    Or while TorchScript traces, which does not know lists of sizes that may be symbolic.
    """
    if torch.compiler.is_compiling():
        return False
    differentiated = torch._C._functorch.peek_interpreter_stack() is not None
    return differentiated or torch.autograd.forward_ad._current_level >= 0 or is_tracing()


def sizes_of(x: Tensor) -> tuple[int, ...]:
    """The shape of `x`, in integers while TorchScript traces, which has tensors there: no cache can hold those.

    Compilers keep their symbols.
    """
    return tuple(map(int, x.shape)) if is_tracing() else tuple(x.shape)
