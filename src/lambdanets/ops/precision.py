"""Sums and softmaxes in float32 for half-precision inputs, so that float16 and bfloat16 neither overflow nor drift."""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ParamSpec

import torch
from torch import Tensor

P = ParamSpec("P")


def widen(x: Tensor) -> Tensor:
    """Half-precision floats as float32; anything else as it is."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Autocast would turn the float32 products inside back into half precision."""
    if device.type == "meta" or not torch.is_autocast_enabled(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def in_full_precision(term: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Evaluate `term` on widened tensors with autocast off; the answer has the dtype of the first tensor."""

    @functools.wraps(term)
    def wide(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        first = args[0]
        assert isinstance(first, Tensor)
        with without_autocast(first.device):
            widened = [widen(a) if isinstance(a, Tensor) else a for a in args]
            return term(*widened, **kwargs).to(first.dtype)  # type: ignore[arg-type]

    return wide
