"""Parameters and FLOPs of every layer of a network, from one pass without numbers."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lambdanets.cost import family  # noqa: F401  # its rules
from lambdanets.cost.multiplies import multiply_adds
from lambdanets.nn import LambdaLayer
from lambdanets.nn.hooks import first_argument, temporary_hooks


class Count(NamedTuple):
    """Of one module alone, without its children."""

    name: str
    kind: str
    parameters: int  # trainable ones; what several modules share counts with the first
    multiply_adds: int

    @property
    def flops(self) -> int:
        return 2 * self.multiply_adds


def count(model: nn.Module, shape: Sequence[int], dtype: torch.dtype | None = None) -> list[Count]:
    """Every module that has parameters or multiplies, on an input of `shape`, in the order in which they are defined.

    The input has the dtype of the parameters unless another is given, such as that of tokens.

    >>> from lambdanets import create_model
    >>> parameters, flops = totals(count(create_model("lambda_resnet26_small"), (1, 3, 32, 32)))
    >>> f"{parameters / 1e6:.1f} M, {flops / 1e9:.2f} G"
    '8.1 M, 2.32 G'
    """
    dtype = dtype or next((p.dtype for p in model.parameters() if p.is_floating_point()), None)
    shadow = without_memory(model).eval()
    try:
        work = multiply_adds_in(shadow, torch.empty(*shape, dtype=dtype, device="meta"))
    except RuntimeError:  # it looks at numbers, or holds tensors that are no buffers
        shadow = deepcopy(model).eval()
        device = next((t.device for t in (*shadow.parameters(), *shadow.buffers())), None)
        work = multiply_adds_in(shadow, torch.zeros(*shape, dtype=dtype, device=device))
    seen: set[int] = set()
    counts = []
    for name, module in shadow.named_modules():
        own = [p for p in module.parameters(recurse=False) if p.requires_grad and id(p) not in seen]
        seen.update(map(id, own))
        entry = Count(name, type(module).__name__, sum(p.numel() for p in own), work.get(module, 0))
        if entry.parameters or entry.multiply_adds:
            counts.append(entry)
    return counts


def multiply_adds_in(model: nn.Module, x: Tensor) -> dict[nn.Module, int]:
    """Of every module that is called when the model sees `x`, without its children."""
    work: dict[nn.Module, int] = {}
    handles = []
    inside = parts_of_layers(model)
    for module in model.modules():

        def watch(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
            given = first_argument(inputs, named)
            if module in inside or not isinstance(given, Tensor):
                return
            context = inputs[1] if len(inputs) > 1 else named.get("context", named.get("key"))
            seen = context if isinstance(context, Tensor) else given
            shape = output.shape if isinstance(output, Tensor) else torch.Size()
            work[module] = work.get(module, 0) + multiply_adds(module, given.shape, seen.shape, shape)

        handles.append(module.register_forward_hook(watch, with_kwargs=True))
    with temporary_hooks(handles), torch.no_grad():
        model(x)
    return work


def parts_of_layers(model: nn.Module) -> set[nn.Module]:
    """What is inside lambda layers, which may compute all of it without a call."""
    layers = [module for module in model.modules() if isinstance(module, LambdaLayer)]
    return {part for layer in layers for part in layer.modules() if part is not layer}


def without_memory(model: nn.Module) -> nn.Module:
    """A copy whose tensors have shapes and no numbers."""
    memo: dict[int, Any] = {id(t): torch.empty_like(t, device="meta") for t in model.buffers()}
    for p in model.parameters():
        memo[id(p)] = nn.Parameter(torch.empty_like(p, device="meta"), p.requires_grad)
    return deepcopy(model, memo)


def totals(counts: Sequence[Count]) -> tuple[int, int]:
    """Parameters and FLOPs of all together."""
    return sum(c.parameters for c in counts), sum(c.flops for c in counts)
