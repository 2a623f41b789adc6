"""Runs a comparison: trains entries that are not trained yet, then measures all."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lambdanets.bench.compare.budget import Budget
from lambdanets.bench.compare.entries import Entry
from lambdanets.bench.compare.measures import measure
from lambdanets.bench.compare.runs import configuration, folder_of, trained
from lambdanets.bench.compare.summary import Published, rows_of
from lambdanets.runs.description import Description
from lambdanets.train.config import RunConfig

ROUNDS = 3  # of timing


@dataclass(frozen=True)
class Contest:
    entries: Sequence[Entry]
    budget: Budget
    seeds: int
    out: Path
    settings: Sequence[str] = ()  # changes of the recipe for all entries, as in `lambdanets train`

    @property
    def steps(self) -> int:
        return self.seeds * len(self.entries) + ROUNDS

    @property
    def shared(self) -> RunConfig:
        """The configuration that all entries share."""
        return configuration(Entry("none"), self.budget, 0, list(self.settings))

    def run(
        self, published: Published, tell: Callable[[str], None], advance: Callable[[], None]
    ) -> list[dict[str, Any]]:
        """Run everything. `tell` gets a description of each step, `advance` is called after each of the `steps`."""
        configs = {
            (entry.name, seed): configuration(entry, self.budget, seed, list(self.settings))
            for entry in self.entries
            for seed in range(self.seeds)
        }
        runs: dict[str, list[Description]] = {entry.name: [] for entry in self.entries}
        for seed in range(self.seeds):  # all entries with one seed before the next
            for entry in self.entries:
                tell(f"{entry.name}, seed {seed}")
                runs[entry.name].append(trained(folder_of(self.out, entry, seed), configs[entry.name, seed]))
                advance()
        tell("time and memory")

        def rounds() -> Iterable[None]:
            for _ in range(ROUNDS):
                yield
                advance()

        models = {entry.name: folder_of(self.out, entry, 0).config().model for entry in self.entries}
        costs = measure({name: (model.name, dict(model.changes)) for name, model in models.items()}, rounds())
        return rows_of(self.entries, runs, costs, published)
