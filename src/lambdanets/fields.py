"""Parses text and YAML values as typed fields, for configurations and commands."""

import ast
import types
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from reprlib import Repr
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

DEEPEST, MOST_VALUES = 32, 1_000_000  # limits for files

BRIEF = Repr()
BRIEF.maxlevel = 3
BRIEF.maxlist = BRIEF.maxtuple = BRIEF.maxdict = 10
BRIEF.maxstring = BRIEF.maxother = 200


def read(value: Any, hint: Any) -> Any:
    """Parse a value or a text as a type; TypeError if that is impossible.

    >>> read("8", int), read("1e-4", float), read("350", str), read("None", int | None), read([1, 2], tuple[int, float])
    (8, 0.0001, '350', None, (1, 2.0))
    """
    candidates = [literal(value), value] if isinstance(value, str) else [value]
    for candidate in candidates:
        try:
            return fitted(candidate, hint)
        except TypeError:
            continue
    raise TypeError(f"must be {type_name(hint)}, got {brief(value)}")


def literal(text: str) -> Any:
    """The value of a Python or YAML literal, or the text itself."""
    words = {"null": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # from the compiler, for texts that are not Python
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):  # the last two for deep nesting
        return text


def fitted(value: Any, hint: Any) -> Any:
    """Convert a value to a type: integers to floats, lists to tuples. TypeError if it does not fit."""
    origin, choices = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        exact = [one for one in choices if type(value) is one]
        for one in (*exact, *choices):
            try:
                return fitted(value, one)
            except TypeError:
                continue
    elif origin is tuple and isinstance(value, list | tuple):
        hints = [choices[0]] * len(value) if choices[-1] is ... else choices
        if len(hints) == len(value):
            return tuple(map(fitted, value, hints))
    elif origin is dict and isinstance(value, dict):
        return {fitted(key, choices[0]): read(its, choices[1]) for key, its in value.items()}
    elif origin is Literal:
        if any(type(value) is type(one) and value == one for one in choices):
            return value
    elif hint is None or hint is types.NoneType:
        if value is None:
            return None
    elif hint is float and type(value) in (int, float):
        try:
            return float(value)
        except OverflowError:
            raise TypeError(f"{brief(value)} is too large for a float") from None
    elif hint is Any or type(value) is hint:
        return value
    raise TypeError(f"{brief(value)} is not {type_name(hint)}")


def fit_fields(instance: Any) -> None:
    """Convert every field of a frozen dataclass to its type; ValueError with the name if one does not fit."""
    hints = hints_of(type(instance))
    for field in fields(instance):
        value = getattr(instance, field.name)
        try:
            object.__setattr__(instance, field.name, fitted(value, hints[field.name]))
        except TypeError:
            raise ValueError(
                f"{type(instance).__name__}: {field.name} must be {type_name(hints[field.name])}, "
                f"got {field.name}={brief(value)}"
            ) from None


def fitted_fields(its_class: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert values from a file to the fields of a dataclass; ValueError with the name if one does not fit."""
    found, hints = {}, hints_of(its_class)
    for name, value in values.items():
        try:
            found[name] = fitted(value, hints[name])
        except TypeError:
            raise ValueError(f"{name} must be {type_name(hints[name])}, got {brief(value)}") from None
    return found


def with_tuples(options: dict[str, Any]) -> dict[str, Any]:
    """Convert lists from a file back to tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}


def hints_of(its_class: Any) -> dict[str, Any]:
    """The type of every field of a dataclass."""
    hints = get_type_hints(its_class)
    return {field.name: hints[field.name] for field in fields(its_class)}


def type_name(hint: Any) -> str:
    """The name of a type, for error messages.

    >>> type_name(int | None), type_name(Literal["sgd", "adamw"]), type_name(tuple[float, float])
    ('int or None', 'sgd or adamw', 'tuple[float, float]')
    """
    origin, choices = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(map(type_name, choices))
    if origin is Literal:
        return " or ".join(map(str, choices))
    if hint is types.NoneType:
        return "None"
    return str(hint) if choices else hint.__name__


def brief(value: Any) -> str:
    """The repr of a value, truncated if it is long.

    >>> brief([1, "a"]), len(brief("a" * 10**6)), brief(16**5000)
    ("[1, 'a']", 200, 'an int of 20001 bits')
    """
    try:
        return BRIEF.repr(value)
    except ValueError:  # Python does not print integers of more than 4300 digits
        return f"an int of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"


def refuse_nesting(value: Any) -> None:
    """Raise ValueError for values that are nested too deeply, too many, or recursive."""
    waiting, values = [(value, 1)], 0
    while waiting:
        one, depth = waiting.pop()
        inner = [*one, *one.values()] if isinstance(one, dict) else one if isinstance(one, list) else []
        values += len(inner)
        if inner and depth > DEEPEST:
            raise ValueError(f"its values are nested more than {DEEPEST} deep")
        if values > MOST_VALUES:
            raise ValueError(f"it has more than {MOST_VALUES:,} values")
        waiting += [(each, depth + 1) for each in inner if isinstance(each, dict | list)]


def nearest(name: str, names: Iterable[str], prefix: str = "") -> str:
    """A suggestion for the message about an unknown name; `prefix` is prepended to the suggested name.

    >>> nearest("bach_size", ["batch_size", "workers"])
    '; did you mean batch_size?'
    """
    found = get_close_matches(name, list(names), n=1)
    return f"; did you mean {prefix}{found[0]}?" if found else ""
