"""Parameters and FLOPs of every layer of a network, from one forward pass on the meta device."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lambdanets.cost import attention  # noqa: F401  # registers its rules
from lambdanets.cost.multiplies import multiply_adds
from lambdanets.nn import LambdaLayer
from lambdanets.nn.hooks import first_argument, temporary_hooks


class Count(NamedTuple):
    """The cost of one module without its children."""

    name: str
    kind: str
    parameters: int  # trainable ones; shared parameters count for the first module that has them
    multiply_adds: int

    @property
    def flops(self) -> int:
        return 2 * self.multiply_adds


def count(model: nn.Module, shape: Sequence[int], dtype: torch.dtype | None = None) -> list[Count]:
    """The cost of every module with parameters or multiply-adds, on an input of `shape`, in the order of definition.

    The input has the dtype of the parameters unless another is given, such as an integer dtype for tokens.

    >>> from lambdanets import create_model
    >>> parameters, flops = totals(count(create_model("lambda_resnet26_small"), (1, 3, 32, 32)))
    >>> f"{parameters / 1e6:.1f} M, {flops / 1e9:.2f} G"
    '8.1 M, 2.32 G'
    """
    dtype = dtype or next((p.dtype for p in model.parameters() if p.is_floating_point()), None)
    return count_on(model, [torch.empty(*shape, dtype=dtype, device="meta")])


def count_on(model: nn.Module, inputs: Sequence[Tensor]) -> list[Count]:
    """`count` for a network with any number of inputs, of which shapes and dtypes matter."""
    shadow = without_memory(model).eval()
    try:
        work = multiply_adds_in(shadow, [torch.empty_like(x, device="meta") for x in inputs])
    except RuntimeError:  # its forward depends on values, or uses tensors that are not buffers
        shadow = deepcopy(model).eval()
        device = next((t.device for t in (*shadow.parameters(), *shadow.buffers())), torch.get_default_device())
        work = multiply_adds_in(shadow, [torch.zeros_like(x, device=device) for x in inputs])
    seen: set[int] = set()
    counts = []
    for name, module in shadow.named_modules():
        own = [p for p in module.parameters(recurse=False) if p.requires_grad and id(p) not in seen]
        seen.update(map(id, own))
        entry = Count(name, type(module).__name__, sum(p.numel() for p in own), work.get(module, 0))
        if entry.parameters or entry.multiply_adds:
            counts.append(entry)
    return counts


def multiply_adds_in(model: nn.Module, inputs: Sequence[Tensor]) -> dict[nn.Module, int]:
    """Multiply-adds of every module that a forward pass calls, without its children."""
    work: dict[nn.Module, int] = {}
    handles = []
    inside = parts_of_layers(model)
    for module in model.modules():

        def add(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            given = first_argument(args, kwargs)
            if module in inside or not isinstance(given, Tensor):
                return
            context = args[1] if len(args) > 1 else kwargs.get("context", kwargs.get("key"))
            seen = context if isinstance(context, Tensor) else given
            shape = output.shape if isinstance(output, Tensor) else torch.Size()
            work[module] = work.get(module, 0) + multiply_adds(module, given.shape, seen.shape, shape)

        handles.append(module.register_forward_hook(add, with_kwargs=True))
    with temporary_hooks(handles), torch.no_grad():
        model(*inputs)
    return work


def parts_of_layers(model: nn.Module) -> set[nn.Module]:
    """The modules inside lambda layers, which may compute everything without calling them."""
    layers = [module for module in model.modules() if isinstance(module, LambdaLayer)]
    return {part for layer in layers for part in layer.modules() if part is not layer}


def without_memory(model: nn.Module) -> nn.Module:
    """A copy on the meta device."""
    memo: dict[int, Any] = {id(t): torch.empty_like(t, device="meta") for t in model.buffers()}
    for p in model.parameters():
        memo[id(p)] = nn.Parameter(torch.empty_like(p, device="meta"), p.requires_grad)
    return deepcopy(model, memo)


def totals(counts: Sequence[Count]) -> tuple[int, int]:
    """Parameters and FLOPs of all modules together."""
    return sum(c.parameters for c in counts), sum(c.flops for c in counts)
