"""`lambdanets bench`: runs benchmarks, prints and writes their results, and draws pictures of them."""

import argparse
import os
import subprocess
import sys
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path

from lambdanets.cli.output import say
from lambdanets.cli.parser import (
    Parser,
    Subparsers,
    UserError,
    add_command,
    check_writable,
    from_extra,
    positive,
    seconds,
)

SUMMARIES = {
    "layers": "time and memory of lambda layers (ours and others), a 3x3 convolution and attention",
    "models": "time and memory of a ResNet-50 with convolutions, with our lambda layers, and with those of others",
    "limit": "speed of the native kernels as a fraction of this machine's matrix products",
    "scaling": "how time and memory grow with the size of maps and sequences",
    "sizes": "time and memory of a training step of lambda layers and attention on growing maps",
    "training": "overhead of lambdanets train over a plain PyTorch loop with the same network and batches",
    "plans": "whether the automatically chosen plan is the fastest",
}


# Limit torch, oneDNN, MKL and the kernels to an instruction set. Each reads its variable when it is loaded.
LIMITED_TO = {
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "LAMBDANETS_INSTRUCTION_SET": "avx2",
    }
}


def add_parser(commands: Subparsers) -> None:
    summary = "benchmark layers, models, plans and training on this machine"
    parser = add_command(commands, "bench", summary)
    benchmarks = parser.add_subparsers(metavar="BENCHMARK", required=True)
    each = {}
    for name, summary in SUMMARIES.items():
        each[name] = add_command(benchmarks, name, summary, partial(run, benchmark=name))
    for benchmark in each.values():
        add_common(benchmark)
    formats = ("contiguous", "channels-last")
    each["layers"].add_argument(
        "--format", choices=formats, default="contiguous", help="memory format of the feature maps"
    )
    each["layers"].add_argument(
        "--memory",
        choices=("none", "largest", "all"),
        help="feature maps for which to measure the peak memory of training (default: all, or none with --quick)",
    )
    each["plans"].add_argument(
        "--patience", type=seconds, default=3.0, metavar="S", help="do not try plans predicted to take longer"
    )
    each["training"].add_argument(
        "--steps", type=positive, default=argparse.SUPPRESS, metavar="N", help="number of steps to time in each round"
    )
    picture = add_command(benchmarks, "picture", "draw the results of bench layers or bench sizes", run_picture)
    picture.add_argument("report", metavar="F.json", type=Path)
    picture.add_argument("picture", metavar="OUT.png", type=Path)


def add_common(parser: Parser) -> None:
    parser.add_argument(
        "--rounds",
        type=positive,
        default=argparse.SUPPRESS,
        help="rounds of interleaved timing; the fastest is reported",
    )
    parser.add_argument("--threads", type=positive, help="number of threads (default: torch's)")
    parser.add_argument(
        "--instructions",
        choices=tuple(LIMITED_TO),
        help="restrict torch, the other libraries and our kernels to this instruction set",
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes for a smoke test; the results are not meaningful"
    )
    parser.add_argument("--json", type=Path, metavar="F", help="write machine, settings and results to this file")


def run(options: argparse.Namespace, benchmark: str) -> None:
    limits = LIMITED_TO.get(options.instructions, {})
    if any(os.environ.get(name) != value for name, value in limits.items()):
        # Start a new process, because this one has loaded torch already.
        command = [sys.executable, "-m", "lambdanets.cli", *options.arguments]
        sys.exit(subprocess.run(command, env={**os.environ, **limits}).returncode)

    import torch

    from lambdanets.bench.job import CannotBenchmarkError
    from lambdanets.bench.machine import describe_machine
    from lambdanets.bench.peers import absent
    from lambdanets.bench.report import Report, command_line
    from lambdanets.cli.tables import show
    from lambdanets.cli.terminal import run_jobs, wide_console

    check_writable("--json", options.json)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    if benchmark == "layers":
        options.memory = options.memory or ("none" if options.quick else "all")
        for name, reason in absent().items():
            say(f"without {name}: {reason}")
    module = import_module(f"lambdanets.bench.{benchmark}")
    given = {name: value for name, value in vars(options).items() if name in module.Settings.__dataclass_fields__}
    settings = module.Settings(**given)
    try:
        with from_extra("train" if benchmark == "training" else "bench"):
            rows = run_jobs(module.jobs(settings))
    except CannotBenchmarkError as error:
        raise UserError(str(error), code=1) from error
    machine = describe_machine(quick=options.quick)
    spelt_out = {**asdict(settings), "threads": machine["threads"]}
    if options.instructions is not None:
        spelt_out["instructions"] = options.instructions
    report = Report(machine, command_line(benchmark, spelt_out), spelt_out, rows)
    show(benchmark, report, wide_console())
    if options.json is not None:
        report.write(options.json)


def run_picture(options: argparse.Namespace) -> None:
    with from_extra("bench"):
        from lambdanets.bench.picture import draw
        from lambdanets.bench.report import Report

    try:
        draw(Report.read(options.report), options.picture)
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error
