"""Parameters and FLOPs of the networks of the rows; each network is counted once."""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

import torch

from lambdanets.bench.job import Track, untracked
from lambdanets.cost import count, totals
from lambdanets.models import ResNet, ResNetConfig, create_model
from lambdanets.paper.networks import networks


class Counted(NamedTuple):
    """A network, and all its rows (table, row)."""

    rows: list[tuple[int, str]]
    parameters: float  # millions
    flops: float  # billions, at its own image size


def count_networks(table: int | None = None, track: Track = untracked) -> list[Counted]:
    """All networks of one table, or of all."""
    rows: dict[ResNetConfig, list[tuple[int, str]]] = {}
    for place in sorted(networks()):
        if table is None or place[0] == table:
            rows.setdefault(configuration(*place), []).append(place)
    return [Counted(places, parameters(*places[0]), flops(config)) for config, places in track(rows.items())]


@cache
def network(table: int, row: str) -> ResNet:
    """The network of a row, on the meta device."""
    name, changes = networks()[table, row]
    with torch.device("meta"):
        model = create_model(name, **changes)
    assert isinstance(model, ResNet)
    return model


def configuration(table: int, row: str) -> ResNetConfig:
    """The configuration of a row. The scope of lambda layers is explicit, so that equal networks compare equal."""
    config = network(table, row).config
    return replace(config, scope=config.lambda_scope) if config.layer == "lambda" else config


def parameters(table: int, row: str) -> float:
    """Millions."""
    return sum(p.numel() for p in network(table, row).parameters()) / 1e6


@cache
def flops(config: ResNetConfig) -> float:
    """Billions."""
    model = ResNet.on_meta(config)
    return totals(count(model, (1, config.in_chans, config.image_size, config.image_size)))[1] / 1e9
