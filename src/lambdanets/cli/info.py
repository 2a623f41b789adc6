"""`lambdanets info`: shows versions, the machine, and whether the kernels are available."""

import argparse
import platform

from lambdanets.cli.output import say
from lambdanets.cli.parser import Subparsers, add_command
from lambdanets.optional import install_hint


def add_parser(commands: Subparsers) -> None:
    add_command(commands, "info", "show versions, the machine, and whether the kernels are available", run)


def run(_: argparse.Namespace) -> None:
    import torch

    from lambdanets.bench.machine import PACKAGES, cores, cpu_model, installed_version
    from lambdanets.kernels import instruction_set, unavailable

    reason = unavailable()
    facts = {
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "cpu": cpu_model(),
        "threads": f"{torch.get_num_threads()} (torch), {cores()} cores",
        "kernels": f"native, for {instruction_set()}" if reason is None else f"none: {reason}",
    }
    versions = {package: installed_version(package) for package in PACKAGES}
    versions["torch"] = torch.__version__  # with the build, such as +cpu
    for package, version in versions.items():
        facts[package] = version or f"not installed (optional, for lambdanets bench: {install_hint('bench')})"
    width = max(map(len, facts))
    for name, fact in facts.items():
        say(f"{name:<{width}}  {fact}")
