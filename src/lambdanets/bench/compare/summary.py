"""Rows of a comparison: accuracy over the seeds, costs, and the published figures."""

import csv
import io
from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from lambdanets.bench.compare.entries import Entry
from lambdanets.runs.description import Description

COLUMNS = (
    "entry",
    "accuracy",
    "spread",
    "seeds",
    "parameters",
    "flops",
    "inference_images_per_second",
    "training_images_per_second",
    "training_peak_bytes",
    "published_row",
    "published_params_M",
    "published_top1",
)
Published = Mapping[tuple[int, str, str], float]


def rows_of(
    entries: Sequence[Entry],
    runs: Mapping[str, Sequence[Description]],
    costs: Mapping[str, Mapping[str, Any]],
    published: Published,
) -> list[dict[str, Any]]:
    """One row for each entry; the spread is the standard deviation over seeds, None for one seed.

    Diverged runs do not count; an entry without other runs has no accuracy.
    """
    rows = []
    for entry in entries:
        accuracies = [run.score for run in runs[entry.name] if run.score is not None]
        printed = {
            f"published_{what}": None if entry.published is None else published.get((*entry.published, what))
            for what in ("params_M", "top1")
        }
        rows.append(
            {
                "entry": entry.name,
                "accuracy": mean(accuracies) if accuracies else None,
                "spread": stdev(accuracies) if len(accuracies) > 1 else None,
                "seeds": len(accuracies),
                **costs[entry.name],
                "published_row": None if entry.published is None else "Table {}: {}".format(*entry.published),
                **printed,
            }
        )
    return rows


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=COLUMNS)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
