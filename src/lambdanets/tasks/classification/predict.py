"""Classifies image files."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from lambdanets.data import BadItemError
from lambdanets.data.images import decode, find_images
from lambdanets.train.task import Prediction

BATCH = 16  # images


@dataclass(frozen=True)
class ClassPrediction(Prediction):
    """The most likely classes with their probabilities."""

    top: list[tuple[str, float]] = field(default_factory=list)

    def cells(self) -> list[str]:
        return [f"{name} {share:.1%}" for name, share in self.top]

    def as_json(self) -> dict[str, Any]:
        return {"image": self.input, "top": self.top, "error": self.error}


def predict(
    classify: Callable[[UInt8[Tensor, "b c s s"]], Float[Tensor, "b k"]],
    transform: Callable[[UInt8[Tensor, "c i j"]], UInt8[Tensor, "c s s"]],
    inputs: Sequence[str],
    classes: Sequence[str],
    channels: int,
    top: int,
) -> Iterator[ClassPrediction]:
    """In order, a few at a time. Inputs are files, folders and patterns."""
    images = find_images(inputs)
    for first in range(0, len(images), BATCH):
        read: dict[Path, Tensor] = {}
        errors: dict[Path, str] = {}
        for path in images[first : first + BATCH]:
            try:
                read[path] = transform(decode(path, str(path), channels))
            except BadItemError as error:
                errors[path] = error.reason
        answers = {}
        if read:
            best = classify(torch.stack(list(read.values()))).float().softmax(1).cpu().topk(min(top, len(classes)))
            answers = dict(zip(read, zip(best.values.tolist(), best.indices.tolist(), strict=True), strict=True))
        for path in images[first : first + BATCH]:
            if path in errors:
                yield ClassPrediction(str(path), errors[path])
            else:
                shares, places = answers[path]
                named = [(classes[i], share) for share, i in zip(shares, places, strict=True)]
                yield ClassPrediction(str(path), top=named)
