"""Comparable timings: functions run interleaved, and the best of several rounds counts."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

Name = TypeVar("Name")

# Consecutive calls of one function: the first call finds the caches of the function before.
TURN = 3


def best_times(contestants: Mapping[Name, Callable[[], object]], rounds: Iterable[object]) -> dict[Name, float]:
    """The best time of each function, in seconds.

    Other load slows a shared machine down for a while. Interleaving affects all functions alike, and the best round
    avoids it.
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
    """The best time of a single function, in seconds."""
    return min(one_time(run) for _ in range(repeats))
