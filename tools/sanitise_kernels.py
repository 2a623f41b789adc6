#!/usr/bin/env python3
"""Search the kernels for overruns, uninitialised memory, undefined behaviour and wrong results, on random problems.

The kernels are compiled with the address and undefined behaviour sanitisers into a temporary folder, the program of
tools/sanitise/ is linked with them, and every problem runs forward and backward in float and double, with every
instruction set that this machine has, with one thread and with several. A failing case is reported; `--first` with its
index and the same `--seed` repeats it alone.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from lambdanets.kernels.build import SOURCES, CannotBuildError, build, compiler, run

DRIVER = Path(__file__).resolve().parent / "sanitise"
# -g1 has the lines that reports name, and compiles in two thirds of the time of -g.
SANITISERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1"]
OPTIONS = {
    # Fresh memory is NaN, so that reads of uninitialised memory show in the results. Red zones are wider than any
    # vector: of a wide access the compiler checks the first and the last byte only.
    "ASAN_OPTIONS": "malloc_fill_byte=255:max_malloc_fill_size=1073741824:redzone=256",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    # With more threads than cores, waiting threads must not spin.
    "OMP_WAIT_POLICY": "passive",
}


def make_driver(folder: Path) -> Path:
    """The program, linked with sanitised kernels; all of it in `folder`."""
    # After the -O3 of the build, -Og takes precedence: reports then name the right lines.
    library = build(folder / "liblambdanets.so", [*SANITISERS, "-Og"])
    program = folder / "driver"
    # The program itself is not instrumented: its naive loops would take most of the time.
    compiled = [*compiler(), "-std=gnu11", "-O2", "-Wall", "-Wextra", f"-I{SOURCES}", "-c", str(DRIVER / "driver.c")]
    run([*compiled, "-o", f"{program}.o"])
    run([*compiler(), *SANITISERS, f"{program}.o", str(library), f"-Wl,-rpath,{folder}", "-lm", "-o", str(program)])
    return program


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--cases", type=int, default=1000, help="how many random problems (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random problems (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="index of the first, to repeat one (%(default)s)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            program = make_driver(Path(folder))
        except CannotBuildError as error:
            print(f"the kernels were not built: {error}", file=sys.stderr)
            return 2
        numbers = [str(number) for number in (arguments.first, arguments.cases, arguments.seed)]
        return subprocess.run([str(program), *numbers], env={**os.environ, **OPTIONS}).returncode


if __name__ == "__main__":
    sys.exit(main())
