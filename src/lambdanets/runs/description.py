"""run.json, the description of a run, updated from metrics.csv while the run is not finished."""

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from lambdanets.fields import brief, fitted_fields


@dataclass(frozen=True, kw_only=True)
class Description:
    """The summary of a run that `lambdanets runs` shows."""

    task: str = "classification"
    model: str
    data: str
    parameters: int
    started: str
    finished: str | None = None
    epochs: int = 0
    score: float | None = None  # of the metric that the task names
    seconds: float = 0.0  # of training
    unit: str = "images"
    units_per_second: float | None = None
    waiting_share: float | None = None

    def __post_init__(self) -> None:
        if self.score is not None and not math.isfinite(self.score):
            raise ValueError(f"score must be finite, got score={brief(self.score)}")
        for name in ("parameters", "epochs", "seconds", "units_per_second", "waiting_share"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be finite and not negative, got {name}={brief(value)}")


# Names of fields in earlier versions. `legacy.py` reads their classes.
OLD_NAMES = {"accuracy": "score", "images_per_second": "units_per_second"}
OLD_FIELDS = {"classes"}


def description_from(found: Any) -> Description:
    """Parse the content of run.json; ValueError if it is invalid."""
    if not isinstance(found, dict):
        raise ValueError(f"it holds {brief(found)}")
    found = {OLD_NAMES.get(name, name): value for name, value in found.items() if name not in OLD_FIELDS}
    known = {field.name: field for field in fields(Description)}
    if missing := [name for name, field in known.items() if field.default is MISSING and name not in found]:
        raise ValueError(f"it has no {', '.join(missing)}")
    if unknown := [brief(name) for name in found if name not in known]:
        raise ValueError(f"it has unknown fields {', '.join(unknown[:5])}")
    return Description(**fitted_fields(Description, found))


def with_metrics(known: Description, text: str, score: str) -> Description:
    """Update a description from the text of metrics.csv; `score` is the column of the task's score."""
    reader = csv.DictReader(io.StringIO(text, newline=""))
    rows, rate = list(reader), f"{known.unit}_per_second"
    missing = {"seconds", rate} - {*(reader.fieldnames or ())}
    if text and missing:
        raise ValueError(f"it has no column {' and no '.join(sorted(missing))}")
    scores = [number(row, score) for row in rows if row.get(score)]
    return replace(
        known,
        epochs=len(rows),
        score=scores[-1] if scores else None,
        seconds=sum((number(row, "seconds") for row in rows), 0.0),
        units_per_second=number(rows[-1], rate) if rows else None,
    )


def number(row: Mapping[str, str | None], name: str) -> float:
    try:
        return float(row[name] or "")
    except ValueError:
        raise ValueError(f"{name} must be a number, got {brief(row[name])}") from None
