"""Measures the tables with throughputs: images per second in inference, peak memory of a training step.

Ratios are relative to the first network of a table, because TPUs and CPUs cannot be compared otherwise.
"""

import signal
import subprocess
from dataclasses import dataclass, replace
from typing import Any

import torch

from lambdanets.bench.formats import MEMORY_FORMATS, Format, convert
from lambdanets.bench.gate import check_layers
from lambdanets.bench.job import Job, Row, Track
from lambdanets.bench.memory import Subject, peak_in_fresh_process
from lambdanets.bench.passes import forward
from lambdanets.models import ResNet
from lambdanets.paper.networks import networks
from lambdanets.paper.sizes import configuration
from lambdanets.paper.tables import printed
from lambdanets.timing import best_times

TABLES = (4, 12, 13)
QUICK_SIDE = 64
FORMAT: Format = "channels-last"  # the faster one for all of these networks


@dataclass(frozen=True)
class Settings:
    """`quick` uses small images and does not measure peak memory, to try the command."""

    rounds: int | None = None
    quick: bool = False

    @property
    def turns(self) -> int:
        return self.rounds or (1 if self.quick else 5)

    @property
    def batch(self) -> int:
        return 2 if self.quick else 8


@dataclass(frozen=True)
class Measured:
    """Measured and published speed of the network of a row."""

    table: int
    row: str
    image_size: int
    batch: int
    images_per_s: float
    ratio: float  # to the first network of the table
    published_per_s: float  # the paper's, on TPUs
    published_ratio: float
    peak_bytes: int | None  # of a training step, beyond the network and its input; None if not measured


@dataclass(frozen=True)
class Measurement:
    """All rows of one measurement."""

    machine: dict[str, Any]
    settings: Settings
    rows: list[Measured]

    @property
    def unit(self) -> str:
        """The unit of the speeds, with their origin."""
        if self.settings.quick:
            return f"images/s of {QUICK_SIDE} x {QUICK_SIDE} on this machine (quick: not meaningful)"
        return "images/s, measured on this machine"

    def speeds(self, table: int) -> dict[str, float]:
        """Images per second, by row."""
        return {m.row: m.images_per_s for m in self.rows if m.table == table}

    @property
    def machine_in_words(self) -> str:
        machine = self.machine
        kernels = machine["kernels"] or "none"
        return (
            f"{machine['cpu']}, {machine['threads']} threads, kernels {kernels}, torch {machine['versions']['torch']}"
        )


def rows(table: int) -> list[str]:
    """The rows of a table with a network of ours and a throughput."""
    return [row for row in printed(table, "throughput_ex_s") if (table, row) in networks()]


def jobs(table: int | None, settings: Settings) -> list[Job]:
    return [job(each, settings) for each in TABLES if table in (None, each)]


def job(table: int, settings: Settings) -> Job:
    """Time the networks of a table interleaved. The result has a `Measured` for each row of the table."""
    names = rows(table)
    throughputs = printed(table, "throughput_ex_s")
    first = names[0]

    def run(track: Track) -> Row:
        torch.manual_seed(0)
        subjects = {row: subject(table, row, settings.quick) for row in names}
        check_layers(s.module for s in subjects.values())
        best = best_times({row: forward(s.module, s.x) for row, s in subjects.items()}, track(range(settings.turns)))
        peaks = dict.fromkeys(names) if settings.quick else {row: peak(table, row) for row in track(names)}
        return {
            row: Measured(
                table,
                row,
                image_size=subjects[row].x.shape[-1],
                batch=settings.batch,
                images_per_s=settings.batch / best[row],
                ratio=best[first] / best[row],
                published_per_s=throughputs[row],
                published_ratio=throughputs[row] / throughputs[first],
                peak_bytes=peaks[row],
            )
            for row in names
        }

    return Job(f"Table {table}", settings.turns + len(names) * (not settings.quick), run)


def subject(table: int, row: str, quick: bool) -> Subject:
    """The network of a row with images of its own size, or with small ones."""
    config = configuration(table, row)
    if quick:
        config = replace(config, image_size=QUICK_SIDE)
    shapes = [(Settings(quick=quick).batch, config.in_chans, side, side) for side in (config.image_size, 32)]
    x, small = (torch.randn(shape).contiguous(memory_format=MEMORY_FORMATS[FORMAT]) for shape in shapes)
    return Subject(convert(ResNet(config), FORMAT), x, small)


def peak(table: int, row: str, quick: bool = False) -> int | None:
    """Peak bytes; None if the system does not report them or killed the process for lack of memory."""
    try:
        return peak_in_fresh_process(subject, table=table, row=row, quick=quick)
    except subprocess.CalledProcessError as error:
        if error.returncode != -signal.SIGKILL:
            raise
        return None
