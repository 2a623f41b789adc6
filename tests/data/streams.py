"""What every stream of examples has to keep to."""

import pickle
from collections.abc import Callable
from itertools import chain

from lambdanets.data.splits import Example, Stream


def examples(stream: Stream, *, seed: int = 0, epoch: int = 0, part: int = 0, parts: int = 1) -> list[Example]:
    return list(stream.examples(seed=seed, epoch=epoch, part=part, parts=parts))


def names(stream: Stream, **place: int) -> list[str]:
    return [example.name.rpartition("/")[2] for example in examples(stream, **place)]


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
