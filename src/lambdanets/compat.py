"""Private interfaces of torch and Lightning that the library needs, each with the reason."""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules import module as _module
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_map_only

# The base class of all batch norms, including SyncBatchNorm, which is not public.
BatchNorm = _BatchNorm

# In-place arithmetic on lists of tensors in a few kernels, as torch's own optimisers do it. Without a public name, but
# stable for years.
foreach_copy_ = torch._foreach_copy_
foreach_lerp_ = torch._foreach_lerp_
foreach_mul_ = torch._foreach_mul_
foreach_norm = torch._foreach_norm
# What GradScaler calls: one pass over all gradients tells whether any of them is NaN or Inf.
foreach_non_finite_check_and_unscale_ = torch._amp_foreach_non_finite_check_and_unscale_

# Trees of tensors; torch.utils.pytree is public, but has no function for leaves of one type.
map_tensors = partial(tree_map_only, Tensor)

# What an exported graph's nodes call; `torch.ops` documents the objects, not their class.
OpOverload = torch._ops.OpOverload


def is_tracing() -> bool:
    """Whether TorchScript traces: public, but missing from torch's own list of names."""
    return bool(torch.jit.is_tracing())  # type: ignore[attr-defined]


def is_exporting() -> bool:
    """Whether a program is being made that others run: what it does cannot depend on a size or on gradients."""
    return torch.compiler.is_exporting() or is_tracing()


def is_transformed() -> bool:
    """Inside `torch.func` or forward-mode differentiation, which pass the kernels by: tangents would be lost.

    Or while TorchScript traces, which does not know lists of sizes that may be symbolic. Neither has a public test.
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


def has_global_hooks() -> bool:
    """Whether hooks are registered for all modules. torch can register them publicly, but not ask for them."""
    of_forward = _module._global_forward_hooks or _module._global_forward_pre_hooks
    return bool(of_forward or _module._global_backward_hooks or _module._global_backward_pre_hooks)


def below_autograd(operator: Any, keys: Any, *inputs: Any) -> Any:
    """Call an operator's implementation behind its autograd kernel.

    As `torch.library.register_autograd` does it, which also looks for the defaults of arguments at every call, slowly.
    """
    with torch._C._AutoDispatchBelowAutograd():
        return operator.redispatch(keys & torch._C._after_autograd_keyset, *inputs)


def any_requires_grad(*inputs: Any) -> bool:
    """Whether a tensor among the inputs, or in lists of them, requires a gradient: in C++, once per operator call."""
    return bool(torch._C._any_requires_grad(*inputs))


def is_accumulating(trainer: Any) -> bool:
    """Whether more batches belong to the current step: Lightning has no public answer before the step is taken."""
    return bool(trainer.fit_loop.epoch_loop._should_accumulate())


def is_validation_due(trainer: Any) -> bool:
    """Whether Lightning would validate at this batch by its settings, had it not been stopped."""
    return bool(trainer.fit_loop.epoch_loop._should_check_val_epoch())
