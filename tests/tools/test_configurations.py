"""tools/test_matrix.py: what it forces is in force, or it says so."""

import os
import sys
from pathlib import Path

import pytest

from lambdanets.cli.bench import LIMITED_TO

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from instruction_sets import LIMITS
from test_matrix import NO_KERNELS, QUICK, QUICK_TESTS, ROOT, Configuration, Force, configurations, environment, run

TESTS = """
import pytest

def test_passes(): pass
def test_fails(): assert FINE
def test_is_skipped(): pytest.skip()
@pytest.fixture
def broken(): assert FINE
def test_is_not_reached(broken): pass
"""


@pytest.fixture
def tests(tmp_path):
    def write(fine: bool) -> tuple[str, ...]:
        path = tmp_path / "test_some.py"
        path.write_text(TESTS.replace("FINE", str(fine)))
        return (str(path),)

    return write


def test_every_instruction_set_up_to_the_machines_own():
    names = {best: [c.name for c in configurations(best)] for best in (None, *LIMITS)}
    assert names["avx512"] == ["baseline", "avx2", "avx512", *names[None]]
    assert names["avx2"] == ["baseline", "avx2", *names[None]]
    assert names["baseline"] == ["baseline", *names[None]]
    assert names[None] == ["no kernels", *(["one core"] if hasattr(os, "sched_setaffinity") else [])]
    assert {*QUICK} <= {*names["avx2"]}
    assert all((ROOT / test).exists() for test in QUICK_TESTS)


def test_limits_are_those_of_the_benchmarks():
    assert {name: LIMITS[name] for name in LIMITED_TO} == LIMITED_TO


def test_nothing_else_is_limited(monkeypatch):
    monkeypatch.setenv("LAMBDANETS_INSTRUCTION_SET", "avx2")
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    monkeypatch.setenv(NO_KERNELS, "1")
    assert not environment().keys() & {NO_KERNELS, *LIMITS["avx2"]}
    baseline, *_ = configurations("avx2")
    assert environment(baseline).items() >= LIMITS["baseline"].items()


def test_totals_and_what_is_in_force(tests):
    outcome = run(Configuration("one core", Force(kernels="none", cores=1), {NO_KERNELS: "1"}), tests(fine=True))
    assert outcome.complaints == []
    assert outcome.counts == {"passed": 3, "skipped": 1}


def test_failures_and_what_is_not_in_force_are_told(tests, capfd):
    outcome = run(Configuration("wrong", Force(kernels="abacus"), {NO_KERNELS: "1"}), tests(fine=False))
    assert outcome.complaints == ["kernels was to be abacus, but none was in force", "pytest ended with 1"]
    assert outcome.counts == {"passed": 1, "failed": 2, "skipped": 1}
    assert str(outcome).startswith("1 passed, 2 failed, 1 skipped in ")
    assert str(outcome).endswith(": FAILED")
    assert "test_some.py::test_fails" in capfd.readouterr().err


def test_a_process_that_dies_is_told(tmp_path):
    path = tmp_path / "test_some.py"
    path.write_text("import os\n\ndef test_dies():\n    os._exit(3)\n")
    assert run(Configuration("dead", Force()), (str(path),)).complaints == [
        "the process ended with 3 and left no totals"
    ]
