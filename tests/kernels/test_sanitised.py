"""Random problems under the address and undefined behaviour sanitisers: some here, thousands with `make sanitise`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lambdanets.kernels.build import CannotBuildError, compiler, run

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from sanitise_kernels import OPTIONS, SANITISERS, make_driver


def test_random_problems_are_clean_and_faults_would_be_found(tmp_path):
    """One test, since compiling takes most of its time and pytest's workers would each do it."""
    try:
        run([*compiler(), *SANITISERS, "-shared", "-x", "c", os.devnull, "-o", str(tmp_path / "nothing")])
    except CannotBuildError as error:
        pytest.skip(f"no C compiler with sanitisers: {error}")
    program = make_driver(tmp_path)

    def search(cases, *planted):
        command = [str(program), "0", str(cases), "0", *planted]
        return subprocess.run(command, env={**os.environ, **OPTIONS}, capture_output=True, text=True, timeout=300)

    # Tensors an element too short, and results that are not what the loops give.
    for fault, report in (("short", "heap-buffer-overflow"), ("wrong", "is wrong")):
        done = search(1, fault)
        assert done.returncode != 0
        assert report in done.stderr
        assert "case 0 of seed 0: forward, float, baseline, 1 threads" in done.stderr

    done = search(200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("200 cases, nothing found\n")
