"""Reading constructor arguments: one error, with the values, for each that cannot be."""

from collections.abc import Sequence

from lambdanets.nn.tables import RelationTable, RelativeTable


def positive(owner: str, **arguments: int) -> None:
    """Every argument is a whole number of at least 1."""
    for name, value in arguments.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{owner}: {name} must be a positive integer, got {name}={value!r}")


def one_of(owner: str, **arguments: tuple[object, Sequence[object]]) -> None:
    """Every argument is one of its choices; `1` is not `True`."""
    for name, (value, choices) in arguments.items():
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            offered = ", ".join(map(repr, choices))
            raise ValueError(f"{owner}: {name} must be one of {offered}, got {name}={value!r}")


def per_axis(owner: str, dims: int, **argument: int | Sequence[int]) -> tuple[int, ...]:
    """One number for every axis, or one for all of them, as in torch's convolutions."""
    ((name, value),) = argument.items()
    values = tuple(value) if isinstance(value, Sequence) else (value,) * dims
    if len(values) != dims:
        raise ValueError(f"{owner}: {name} must be one integer or {dims} of them, got {name}={value!r}")
    for number in values:
        positive(owner, **{name: number})
    return values


def make_table(
    owner: str,
    k: int,
    u: int,
    scope: tuple[int, ...] | None,
    size: tuple[int, ...] | None,
    dilation: tuple[int, ...],
    *,
    relations: int | None,
    shared: RelationTable | None,
    std: float,
) -> RelationTable:
    """The table of embeddings that the arguments describe, or the shared one if it fits them."""
    table: RelationTable
    if relations is not None:
        positive(owner, relations=relations)
        if size is not None or max(dilation) > 1:
            raise ValueError(
                f"{owner}: relations are not offsets of a grid and exclude size and dilation, "
                f"got relations={relations}, size={size}, dilation={dilation}"
            )
        table = RelationTable(k, u, relations=relations, std=std)
    elif scope is None and size is None:
        raise ValueError(f"{owner}: scope=None is global and needs size, the largest map, got size=None")
    elif scope is not None and any(r % 2 == 0 for r in scope):
        raise ValueError(f"{owner}: scope must be odd on every axis, so that it has a middle, got scope={scope}")
    else:
        table = RelativeTable(k, u, scope=scope, size=size, std=std)
    if shared is None:
        return table
    check_shared(owner, shared, table)
    return shared


def check_shared(owner: str, shared: RelationTable, own: RelationTable) -> None:
    """A shared table must have the rows and the geometry of the one that the layer would have made."""
    if not isinstance(shared, RelationTable):
        raise ValueError(f"{owner}: table must be the `table` of another layer, got a {type(shared).__name__}")
    fits = type(shared) is type(own) and shared.weight.shape == own.weight.shape
    if not fits or getattr(shared, "scope", None) != getattr(own, "scope", None):
        raise ValueError(f"{owner}: the shared table is {shared}, but the arguments ask for {own}")
