"""Loading the tensors of a file into a network on the meta device, after checking that they fit."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

# From the name and dtype of a floating-point tensor: None if that dtype is allowed, otherwise what it should be.
CheckDtype = Callable[[str, torch.dtype], str | None]


def any_dtype(name: str, dtype: torch.dtype) -> None:
    """No check, for networks that are converted afterwards."""


def aliases(model: nn.Module) -> dict[str, str]:
    """Second names of shared parameters, with their first names."""
    first: dict[int, str] = {}
    found = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if first.setdefault(id(parameter), name) != name:
            found[name] = first[id(parameter)]
    return found


def fill(model: nn.Module, tensors: Mapping[str, Any], check_dtype: CheckDtype) -> None:
    """Assign the tensors of a file to a network on the meta device; ValueError, in one sentence, if they do not fit.

    Integer tensors, such as counters, must have the network's dtype; `check_dtype` decides about the others.
    """
    shared = aliases(model)
    expected = {name: tensor for name, tensor in model.state_dict().items() if name not in shared}
    problems = [f"{name} is not a part of the network" for name in tensors if name not in model.state_dict()]
    for name, described in expected.items():
        problem = problem_with(tensors.get(name), described, partial(check_dtype, name))
        if problem is not None:
            problems.append(f"{name} {problem}")
    if problems:
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise ValueError(f"{problems[0]}{more}")
    own = {name: tensors[name] for name in expected}
    state: Any = OrderedDict(own | {alias: own[name] for alias, name in shared.items()})
    if hasattr(tensors, "_metadata"):  # which records the geometry that modules check
        state._metadata = tensors._metadata
    try:
        model.load_state_dict(state, assign=True)
    except RuntimeError as error:
        raise ValueError(reason_of(error)) from error
    if empty := [name for name, buffer in model.named_buffers() if buffer.is_meta]:
        raise ValueError(f"the buffer {empty[0]} is not in state dicts, so it cannot be restored: make it persistent")


def reason_of(error: Exception) -> str:
    """The first error of `load_state_dict`, and the number of further ones."""
    lines = [line.strip() for line in str(error).splitlines() if not line.startswith("Error(s)")]
    more = f", and {len(lines) - 1} more" if len(lines) > 1 else ""
    return f"{''.join(lines[:1])}{more}"


def problem_with(found: Any, described: Tensor, check_dtype: Callable[[torch.dtype], str | None]) -> str | None:
    if found is None:
        return "is missing"
    if not isinstance(found, Tensor):
        return f"is a {type(found).__name__}, not a tensor"
    if found.shape != described.shape:
        return f"has the shape {tuple(found.shape)}, not {tuple(described.shape)}"
    wanted: str | None
    if described.is_floating_point():
        wanted = check_dtype(found.dtype) if found.is_floating_point() else "a floating-point dtype"
    else:
        wanted = None if found.dtype == described.dtype else name_of(described.dtype)
    return None if wanted is None else f"has the dtype {name_of(found.dtype)}, not {wanted}"


def name_of(dtype: torch.dtype) -> str:
    """
    >>> name_of(torch.bfloat16)
    'bfloat16'
    """
    return str(dtype).removeprefix("torch.")
