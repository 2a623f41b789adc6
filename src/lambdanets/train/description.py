"""run.json: what a run says about itself, and what metrics.csv adds while it is not finished."""

import csv
import io
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from lambdanets.fields import brief, fitted, hints_of, told


@dataclass(frozen=True, kw_only=True)
class Description:
    """What `lambdanets runs` shows and prediction needs, without the data and without a network."""

    model: str
    data: str
    parameters: int
    classes: tuple[str, ...]
    started: str
    finished: str | None = None
    epochs: int = 0
    accuracy: float | None = None
    seconds: float = 0.0  # of training
    images_per_second: float | None = None
    waiting_share: float | None = None

    def __post_init__(self) -> None:
        for name in ("parameters", "epochs", "accuracy", "seconds", "images_per_second", "waiting_share"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be finite and not negative, got {name}={brief(value)}")
        if self.accuracy is not None and self.accuracy > 1:
            raise ValueError(f"accuracy must be at most 1, got accuracy={self.accuracy}")


def description_from(found: Any) -> Description:
    """ValueError if it is none."""
    if not isinstance(found, dict):
        raise ValueError(f"it holds {brief(found)}")
    known = {field.name: field for field in fields(Description)}
    if missing := [name for name, field in known.items() if field.default is MISSING and name not in found]:
        raise ValueError(f"it has no {', '.join(missing)}")
    if unknown := [brief(name) for name in found if name not in known]:
        raise ValueError(f"this version does not know its {', '.join(unknown[:5])}")
    return Description(**{name: field_value(name, value) for name, value in found.items()})


def field_value(name: str, value: Any) -> Any:
    hint = hints_of(Description)[name]
    try:
        return fitted(value, hint)
    except TypeError:
        raise ValueError(f"{name} must be {told(hint)}, got {brief(value)}") from None


def with_metrics(known: Description, text: str) -> Description:
    """With the epochs that metrics.csv has."""
    reader = csv.DictReader(io.StringIO(text, newline=""))
    rows = list(reader)
    missing = {"seconds", "images_per_second"} - {*(reader.fieldnames or ())}
    if text and missing:
        raise ValueError(f"it has no column {' and no '.join(sorted(missing))}")
    accuracies = [number(row, "val_accuracy") for row in rows if row.get("val_accuracy")]
    return replace(
        known,
        epochs=len(rows),
        accuracy=accuracies[-1] if accuracies else None,
        seconds=sum((number(row, "seconds") for row in rows), 0.0),
        images_per_second=number(rows[-1], "images_per_second") if rows else None,
    )


def number(row: Mapping[str, str | None], name: str) -> float:
    try:
        return float(row[name] or "")
    except ValueError:
        raise ValueError(f"{name} must be a number, got {brief(row[name])}") from None
