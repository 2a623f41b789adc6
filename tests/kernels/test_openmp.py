"""The kernels share torch's OpenMP runtime: a second one would bring its own threads, and fight for the cores."""

import subprocess
import sys
from pathlib import Path

import pytest

from lambdanets.kernels import unavailable

COUNT = """
import os
import torch
import lambdanets
from lambdanets.kernels.operators import batch_norm

batch_norm(torch.randn(99, 3), torch.ones(3), torch.zeros(3), 1e-5)  # the runtime is in use, not only mapped
files = {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
names = ("libgomp", "libomp", "libiomp")
print(*sorted({os.path.realpath(f) for f in files if os.path.basename(f).startswith(names)}), sep="\\n")
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="this system does not list a process's files")
@pytest.mark.skipif(unavailable() is not None, reason=f"no kernels: {unavailable()}")
def test_there_is_one_runtime():
    done = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=True, timeout=120)
    assert len(done.stdout.split()) == 1, done.stdout
