"""torch's private interfaces that the library uses, each with the reason why no public one does."""

import torch


def is_transformed() -> bool:
    """Inside `torch.func` or forward-mode differentiation, which pass the kernels by: tangents would be lost.

    Or while TorchScript traces, which does not know lists of sizes that may be symbolic. None of the three has a public
    question; `torch.compiler.is_compiling` is asked first, because dynamo does not trace the private ones.
    """
    if torch.compiler.is_compiling():
        return False
    differentiated = torch._C._functorch.peek_interpreter_stack() is not None
    return differentiated or torch.autograd.forward_ad._current_level >= 0 or torch._C._get_tracing_state() is not None
