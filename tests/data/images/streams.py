"""What every stream has to keep to."""

import pickle
from collections.abc import Callable
from itertools import chain

from lambdanets.data.splits import BadItemError, Item, Stream


def items(stream: Stream, *, seed: int = 0, epoch: int = 0, part: int = 0, parts: int = 1) -> list[Item]:
    return list(stream.items(seed=seed, epoch=epoch, part=part, parts=parts))


def bad_items(stream: Stream) -> list[Item]:
    """Those that cannot be read."""
    found = []
    for item in items(stream):
        try:
            item.read()
        except BadItemError:
            found.append(item)
    return found


def names(stream: Stream, **place: int) -> list[str]:
    return [item.name.rpartition("/")[2] for item in items(stream, **place)]


def check_order(make: Callable[[], Stream]) -> None:
    """It depends on the seed and the epoch alone."""
    stream = make()
    orders = {(seed, epoch): names(stream, seed=seed, epoch=epoch) for seed in range(2) for epoch in range(2)}
    assert len({tuple(order) for order in orders.values()}) == 4
    again = pickle.loads(pickle.dumps(make()))
    for (seed, epoch), order in orders.items():
        assert names(again, seed=seed, epoch=epoch) == order


def check_parts(make: Callable[[], Stream], parts: int) -> None:
    """They are disjoint, and together everything."""
    stream = make()
    found = [names(stream, epoch=3, part=part, parts=parts) for part in range(parts)]
    assert sorted(chain.from_iterable(found)) == sorted(names(stream))
    assert all(found)
    assert found[1] == names(make(), epoch=3, part=1, parts=parts)
