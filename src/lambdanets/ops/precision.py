"""Sums and softmaxes in float32 for half-precision inputs, so that float16 and bfloat16 neither overflow nor drift."""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")


def widen(x: T) -> T:
    """Half-precision tensors as float32; anything else as it is."""
    if isinstance(x, Tensor) and x.dtype in (torch.float16, torch.bfloat16):
        return cast(T, x.float())
    return x


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Autocast would turn the float32 products inside back into half precision."""
    return torch.autocast(device.type, enabled=False) if is_autocast(device) else nullcontext()


def is_autocast(device: torch.device) -> bool:
    """Is autocast on for a device? Not every device can have it, and torch raises on those."""
    return device.type != "meta" and torch.is_autocast_enabled(device.type)


def in_full_precision(term: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Evaluate `term(q, ...)` on widened tensors with autocast off; the answer has the dtype of q."""

    @functools.wraps(term)
    def wide(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        q = cast(Tensor, args[0] if args else kwargs["q"])
        with without_autocast(q.device):
            y = term(*map(widen, args), **{name: widen(x) for name, x in kwargs.items()})  # type: ignore[arg-type]
            return y.to(q.dtype)

    return wide
