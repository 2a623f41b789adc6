"""The fused product of the direct algorithm, by specialised register blocks and by the generic one alone."""

import subprocess
from pathlib import Path

import pytest

from lambdanets.kernels.build import SOURCES, X86, CannotBuildError, compiler, run

CANNOT_RUN = 77


@pytest.mark.parametrize("blocks", [[], ["-DGENERIC_BLOCKS"]], ids=["specialised", "generic"])
@pytest.mark.parametrize("isa", X86)
def test_every_shape_of_block(tmp_path, isa, blocks):
    program = tmp_path / "fused_product"
    source = Path(__file__).with_name("fused_product.c")
    flags = ["-std=gnu11", "-O1", "-Wno-psabi", "-Dreal=float", f"-I{SOURCES}", *X86[isa], *blocks]
    try:
        run([*compiler(), *flags, str(source), "-o", str(program)])
    except CannotBuildError as error:
        pytest.skip(f"no C compiler for {isa}: {error}")
    done = subprocess.run([program], capture_output=True, text=True, timeout=120)
    if done.returncode == CANNOT_RUN:
        pytest.skip(f"this machine does not run {isa}")
    assert done.returncode == 0, done.stderr
