"""Checks of constructor arguments; every error names the argument and shows its value."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter, signature
from numbers import Integral
from typing import Any


def positive(owner: str, **arguments: int) -> None:
    """Every argument is a whole number of at least 1."""
    for name, value in arguments.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{owner}: {name} must be a positive integer, got {name}={value!r}")


def at_most(owner: str, most: int, **arguments: int) -> None:
    """No argument is larger."""
    for name, value in arguments.items():
        if value > most:
            raise ValueError(f"{owner}: {name} must be at most {most}, got {name}={value}")


def rate(owner: str, **arguments: float) -> None:
    """Every argument is a share of what is dropped, of which something stays."""
    for name, value in arguments.items():
        if not 0 <= value < 1:
            raise ValueError(f"{owner}: {name} must be at least 0 and below 1, got {name}={value}")


def one_of(owner: str, **arguments: tuple[object, Sequence[object]]) -> None:
    """Every argument is one of its choices, in type too: `1` is not `True`."""
    for name, (value, choices) in arguments.items():
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            offered = ", ".join(map(repr, choices))
            raise ValueError(f"{owner}: {name} must be one of {offered}, got {name}={value!r}")


def keywords(made: Callable[..., Any]) -> dict[str, Parameter]:
    """What a class takes by name alone."""
    return {name: its for name, its in signature(made).parameters.items() if its.kind is Parameter.KEYWORD_ONLY}


def known_options(owner: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Every option is known."""
    known = list(known)
    if unknown := {name: value for name, value in given.items() if name not in known}:
        got = ", ".join(f"{name}={value!r}" for name, value in unknown.items())
        raise ValueError(f"{owner} has no {', '.join(unknown)}, only {', '.join(known)}, got {got}")


def per_axis(owner: str, dims: int, **argument: int | Sequence[int]) -> tuple[int, ...]:
    """One number for every axis, or one for all of them, as in torch's convolutions."""
    ((name, value),) = argument.items()
    values = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,) * dims
    if len(values) != dims:
        raise ValueError(f"{owner}: {name} must be one integer or {dims} of them, got {name}={value!r}")
    for number in values:
        positive(owner, **{name: number})
    return tuple(map(int, values))


def window(owner: str, dims: int, scope: int | Sequence[int] | None) -> tuple[int, ...] | None:
    """An odd number for every axis, or None for a global scope."""
    if scope is None:
        return None
    values = per_axis(owner, dims, scope=scope)
    if any(r % 2 == 0 for r in values):
        raise ValueError(f"{owner}: scope must be odd on every axis, got scope={values}")
    return values
