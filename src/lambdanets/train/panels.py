"""Panels of the curves of a run; tasks add panels for their scores."""

from collections.abc import Callable
from typing import NamedTuple

BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"


class Line(NamedTuple):
    """A column of the rows, and how it is drawn."""

    key: str
    colour: str
    label: Callable[[float], str]
    factor: float = 1.0


class Panel(NamedTuple):
    title: str
    lines: tuple[Line, ...]
    may_explode: bool = False


LOSS = Panel(
    "loss",
    (Line("train_loss", BLUE, "training {:.3g}".format), Line("val_loss", ORANGE, "validation {:.3g}".format)),
    may_explode=True,
)
LEARNING_RATE = Panel("learning rate", (Line("lr", BLUE, "{:.2g}".format),))
