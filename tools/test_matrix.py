#!/usr/bin/env python3
"""Run the kernel, ops and nn tests once for each kind of machine that this one can pass for.

That is each instruction set up to the machine's own, no kernels, and a single core; `--quick` runs some of the tests
with AVX2, with baseline and without kernels. A configuration has two processes, for the tests with shape checks and
for those marked `unchecked`, and as many processes run at a time as there are cores. When its tests have ended, each
process checks that what was forced was in force.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from instruction_sets import LIMITS, VARIABLES

ROOT = Path(__file__).resolve().parent.parent
NO_KERNELS = "LAMBDANETS_NO_KERNELS"
MARKERS = (
    ("-m", "not unchecked", "--jaxtyping-packages=lambdanets,beartype.beartype"),
    ("-m", "unchecked"),
)
TESTS = ("tests/kernels", "tests/ops", "tests/nn")
# What computes on the CPU, without the tests that go through the instruction sets themselves or take long to trace.
QUICK_TESTS = (
    *("tests/kernels/test_whole_layer.py", "tests/kernels/test_repeatability.py", "tests/kernels/test_misuse.py"),
    *("tests/kernels/test_native_batch_norm.py", "tests/kernels/test_rectified_norm.py"),
    *("tests/kernels/test_operators.py", "tests/kernels/test_second_derivatives.py"),
    *("tests/ops/test_position.py", "tests/ops/test_content.py"),
    *("tests/nn/test_equals_oracle.py", "tests/nn/test_plans.py", "tests/nn/test_heads.py"),
)
QUICK = ("avx2", "baseline", "no kernels")
SHOWN = ("passed", "failed", "skipped")


@dataclass(frozen=True)
class Force:
    """What a process must find in force; None where it is not forced."""

    kernels: str | None = None  # the instruction set, or "none"
    torch: str | None = None
    cores: int | None = None


@dataclass(frozen=True)
class Configuration:
    name: str
    force: Force
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Outcome:
    """Of one or both processes of a configuration."""

    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)  # nothing, if all is well

    def add(self, other: "Outcome") -> None:
        self.seconds += other.seconds
        self.counts += other.counts
        self.complaints += other.complaints

    def __str__(self) -> str:
        totals = ", ".join(f"{self.counts[what]} {what}" for what in SHOWN)
        return f"{totals} in {self.seconds:.0f} s{'' if not self.complaints else ': FAILED'}"


def configurations(best: str | None) -> list[Configuration]:
    """All that a machine can run whose own instruction set is `best`, or that has no kernels at all."""
    sets = [] if best is None else list(LIMITS)[: list(LIMITS).index(best) + 1]
    found = [
        Configuration(name, Force(kernels=name, torch=LIMITS[name]["ATEN_CPU_CAPABILITY"]), LIMITS[name])
        for name in sets
    ]
    found.append(Configuration("no kernels", Force(kernels="none"), {NO_KERNELS: "1"}))
    if hasattr(os, "sched_setaffinity"):
        found.append(Configuration("one core", Force(kernels=best or "none", cores=1)))
    return found


def in_force() -> Force:
    """What this process computes with."""
    import torch

    from lambdanets.kernels import instruction_set, unavailable

    kernels = instruction_set() if unavailable() is None else "none"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return Force(kernels, torch.backends.cpu.get_cpu_capability().lower(), cores)


def environment(configuration: Configuration | None = None) -> dict[str, str]:
    """That of this process, without limits but those of a configuration."""
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES | {NO_KERNELS}}
    return kept if configuration is None else {**kept, **configuration.environment}


def own_instruction_set() -> str | None:
    """The largest one that the kernels find here, or None without kernels."""
    command = [sys.executable, __file__, "--show"]
    done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, text=True, check=True)
    kernels = json.loads(done.stdout)["kernels"]
    return None if kernels == "none" else str(kernels)


class Totals:
    """A plugin of pytest that counts how tests ended."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:  # an error in a fixture too
            self.counts["failed"] += 1
        elif report.skipped or report.when == "call":
            self.counts[report.outcome] += 1


def run_inside(forced: Force, result: Path, arguments: list[str]) -> int:
    """Run pytest in this process, then write down the totals and what was in force."""
    import pytest

    if forced.cores is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: forced.cores])
    totals = Totals()
    code = pytest.main(arguments, plugins=[totals])
    # Afterwards, since shapes are checked only in modules that are imported behind pytest's back.
    result.write_text(json.dumps({"counts": totals.counts, "in_force": asdict(in_force())}))
    return int(code)


def complaints_about(configuration: Configuration, code: int, found: Mapping[str, Any] | None) -> list[str]:
    if found is None:
        return [f"the process ended with {code} and left no totals"]
    wanted = {name: value for name, value in asdict(configuration.force).items() if value is not None}
    told = [
        f"{name} was to be {value}, but {found['in_force'][name]} was in force"
        for name, value in wanted.items()
        if found["in_force"][name] != value
    ]
    return [*told, f"pytest ended with {code}"] if code else told


def run(configuration: Configuration, arguments: tuple[str, ...]) -> Outcome:
    """One process; its output is shown only if something is wrong."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        # inductor would find what it compiled for another instruction set, and take it.
        cache = {"TORCHINDUCTOR_CACHE_DIR": str(Path(folder) / "inductor")}
        command = [sys.executable, __file__, "--inside", json.dumps(asdict(configuration.force)), str(result)]
        done = subprocess.run(
            [*command, "-q", "-p", "no:cacheprovider", *arguments],
            cwd=ROOT,
            env={**environment(configuration), **cache},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        found = json.loads(result.read_text()) if result.exists() else None
    outcome = Outcome(time.monotonic() - start, Counter(found["counts"] if found else {}))
    outcome.complaints = complaints_about(configuration, done.returncode, found)
    if outcome.complaints:
        print(f"{done.stdout}\n{configuration.name}: {'; '.join(outcome.complaints)}", file=sys.stderr, flush=True)
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help=f"some of the tests, with {', '.join(QUICK)}")
    parser.add_argument("tests", nargs="*", help="other tests than those of tests/kernels, tests/ops and tests/nn")
    options = parser.parse_args()
    tests = options.tests or (QUICK_TESTS if options.quick else TESTS)
    every = [c for c in configurations(own_instruction_set()) if not options.quick or c.name in QUICK]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    failed = False
    with ThreadPoolExecutor(cores) as pool:
        begun = [(c, [pool.submit(run, c, (*marker, *tests)) for marker in MARKERS]) for c in every]
        for configuration, processes in begun:
            outcome = Outcome()
            for process in processes:
                outcome.add(process.result())
            if not outcome.counts["passed"]:
                outcome.complaints.append("no test passed")
            failed |= bool(outcome.complaints)
            print(f"{configuration.name:<11} {outcome}", flush=True)
    return int(failed)


if __name__ == "__main__":
    if sys.argv[1:] == ["--show"]:
        print(json.dumps(asdict(in_force())))
    elif sys.argv[1:2] == ["--inside"]:
        sys.exit(run_inside(Force(**json.loads(sys.argv[2])), Path(sys.argv[3]), sys.argv[4:]))
    else:
        sys.exit(main())
