"""Cost of the networks of a comparison: parameters, FLOPs, time and memory."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from lambdanets.bench.memory import Subject, peak_in_fresh_process
from lambdanets.bench.passes import forward, training
from lambdanets.cost.count import count, totals
from lambdanets.models import create_model
from lambdanets.models.network import Network
from lambdanets.timing import best_times

BATCH = 64


def measure(networks: Mapping[str, tuple[str, dict[str, Any]]], rounds: Iterable[object]) -> dict[str, dict[str, Any]]:
    """Measure the model of each entry, given by name and changes, with interleaved timing."""
    runs: dict[tuple[str, str], Any] = {}
    costs: dict[str, dict[str, Any]] = {}
    for entry, (name, changes) in networks.items():
        model = create_model(name, **changes)
        size = image_shape(model)
        parameters, flops = totals(count(model, (1, *size)))
        x = torch.randn(BATCH, *size)
        runs[entry, "inference"], runs[entry, "training"] = (
            forward(model, x),
            training(create_model(name, **changes), x),
        )
        peak = peak_in_fresh_process(subject, name=name, changes=changes)
        costs[entry] = {"parameters": parameters, "flops": flops, "training_peak_bytes": peak}
    for (entry, pass_), seconds in best_times(runs, rounds).items():
        costs[entry][f"{pass_}_images_per_second"] = BATCH / seconds
    return costs


def subject(name: str, changes: dict[str, Any]) -> Subject:
    model = create_model(name, **changes)
    return Subject(model, torch.randn(BATCH, *image_shape(model)), torch.randn(2, *image_shape(model)))


def image_shape(model: Network) -> tuple[int, int, int]:
    return (model.config.in_chans, model.config.image_size, model.config.image_size)
