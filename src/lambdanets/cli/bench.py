"""`lambdanets bench`: the benchmarks, their tables and files, and the picture of a file."""

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
    "layers": "time and memory of the layer, of other lambda layers, of a convolution and of attention",
    "models": "a ResNet-50 without lambda layers, with ours, and with those of others",
    "limit": "the native plan as a share of what the arithmetic of this machine allows",
    "scaling": "how time and memory grow with the size of maps and sequences",
    "sizes": "lambda layers and attention on growing maps: time and memory of a training step",
    "training": "what lambdanets train costs beyond a bare loop over the same network and batches",
    "plans": "whether the plan that is chosen is the fastest",
}


# What keeps torch, oneDNN, MKL and the kernels from using more; each reads it when it is loaded.
LIMITED_TO = {
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "LAMBDANETS_INSTRUCTION_SET": "avx2",
    }
}


def add_parser(commands: Subparsers) -> None:
    summary = "measure: the layer against others, models, plans, the limit of this machine"
    parser = add_command(commands, "bench", summary)
    benchmarks = parser.add_subparsers(metavar="BENCHMARK", required=True)
    each = {}
    for name, summary in SUMMARIES.items():
        each[name] = add_command(benchmarks, name, summary, partial(run, benchmark=name))
    for benchmark in each.values():
        add_common(benchmark)
    formats = ("contiguous", "channels-last")
    each["layers"].add_argument("--format", choices=formats, default="contiguous", help="memory format of the maps")
    each["layers"].add_argument(
        "--memory",
        choices=("none", "largest", "all"),
        help="maps whose peak memory in training is measured: by default all, none with --quick",
    )
    each["plans"].add_argument(
        "--patience", type=seconds, default=3.0, metavar="S", help="try plans predicted to take less seconds"
    )
    each["training"].add_argument(
        "--steps", type=positive, default=argparse.SUPPRESS, metavar="N", help="that are timed in each round"
    )
    picture = add_command(
        benchmarks, "picture", "a file of bench layers as bars, one of bench sizes as lines", run_picture
    )
    picture.add_argument("report", metavar="F.json", type=Path)
    picture.add_argument("picture", metavar="OUT.png", type=Path)


def add_common(parser: Parser) -> None:
    parser.add_argument("--rounds", type=positive, default=argparse.SUPPRESS, help="turns of everyone; the best counts")
    parser.add_argument("--threads", type=positive, help="of torch and the kernels; as many as torch takes by default")
    parser.add_argument(
        "--instructions", choices=tuple(LIMITED_TO), help="as on a CPU that has no more, for torch and all peers too"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to try it out: the numbers say nothing")
    parser.add_argument("--json", type=Path, metavar="F", help="write machine, settings and rows there")


def run(options: argparse.Namespace, benchmark: str) -> None:
    limits = LIMITED_TO.get(options.instructions, {})
    if any(os.environ.get(name) != value for name, value in limits.items()):
        # This process has loaded torch already.
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
