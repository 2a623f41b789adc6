"""Times that can be compared: contestants take turns, and the best of several rounds counts."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

Name = TypeVar("Name")

# Calls in a turn: the first finds the caches as the one before left them.
TURN = 3


def best_times(contestants: Mapping[Name, Callable[[], object]], rounds: Iterable[object]) -> dict[Name, float]:
    """The best seconds of each contestant.

    Neighbours on a shared machine slow everyone down for a while; taking turns shares that, the best round avoids it.
    """
    best = dict.fromkeys(contestants, float("inf"))
    for run in contestants.values():
        run()
    for _ in rounds:
        for name, run in contestants.items():
            for _ in range(TURN):
                best[name] = min(best[name], one_time(run))
    return best


def one_time(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def best_time(run: Callable[[], object], repeats: int = 3) -> float:
    """The best seconds of one alone, where nobody is compared."""
    return min(one_time(run) for _ in range(repeats))
