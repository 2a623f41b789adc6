"""Texts and what YAML makes of them as values of typed fields, for configurations and commands."""

import ast
import types
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Literal, Union, get_args, get_origin


def read(value: Any, hint: Any) -> Any:
    """A value for a field, from itself or from the text that says it; TypeError if there is none.

    >>> read("8", int), read("1e-4", float), read("350", str), read("None", int | None), read([1, 2], tuple[int, int])
    (8, 0.0001, '350', None, (1, 2))
    """
    candidates: list[Any] = [literal(value), value] if isinstance(value, str) else [value]
    for one in candidates:
        candidate: Any = tuple(one) if isinstance(one, list) else one  # YAML has no tuples
        if fits(candidate, hint):
            return float(candidate) if only_as_float(candidate, hint) else candidate
    raise TypeError(f"must be {told(hint)}, got {value!r}")


def literal(text: str) -> Any:
    """What a text says in Python, or in YAML where that has other words for it, or the text."""
    words = {"null": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def fits(value: Any, hint: Any) -> bool:
    """Is a value of a type, as the fields of a configuration have them?"""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in arguments)
    if origin is tuple and arguments[-1] is ...:
        return type(value) is tuple and all(fits(one, arguments[0]) for one in value)
    if origin is tuple:
        return type(value) is tuple and len(value) == len(arguments) and all(map(fits, value, arguments))
    if origin is Literal:
        return type(value) in {type(one) for one in arguments}  # which ones there are, the configuration says better
    if hint is None:
        return value is None
    return type(value) is hint or (hint is float and type(value) is int)


def only_as_float(value: Any, hint: Any) -> bool:
    return type(value) is int and not any(fits(value, one) and one is not float for one in get_args(hint) or (hint,))


def told(hint: Any) -> str:
    """A type in words that somebody who writes a configuration knows."""
    if isinstance(hint, type) and not get_args(hint):
        return hint.__name__
    return str(hint).replace("typing.", "")


def nearest(name: str, names: Iterable[str]) -> str:
    """What to add to the message about an unknown name.

    >>> nearest("bach_size", ["batch_size", "workers"])
    '; did you mean batch_size?'
    """
    found = get_close_matches(name, list(names), n=1)
    return f"; did you mean {found[0]}?" if found else ""
