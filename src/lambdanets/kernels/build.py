"""Compile the kernels: `python -m lambdanets.kernels.build`. Installing the package does it too, see hatch_build.py.

Every source is compiled for each instruction set of the architecture and for both precisions; which one runs is decided
when the library is loaded. Only the standard library is needed here, since torch may not be installed yet.
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "native"
LIBRARY = HERE / "liblambdanets.so"

X86 = {
    "baseline": [],
    "avx2": ["-mavx2", "-mfma", "-mtune=haswell"],
    # Not tuned for AVX-512 machines: GCC then keeps addresses in mask registers, whose moves take the ports of FMA.
    "avx512": [
        *("-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma"),
        *("-mprefer-vector-width=512", "-mtune=haswell"),
    ],
}
# Multiplications and additions may be fused, everything else is as written: no -ffast-math.
FLAGS = ["-std=gnu11", "-O3", "-fPIC", "-ffp-contract=fast", "-Wall", "-Wextra", "-Wno-psabi"]


class CannotBuildError(RuntimeError):
    """There is no compiler, or it does not compile the kernels."""


def compiler() -> list[str]:
    """The C compiler of $CC, or cc, gcc or clang."""
    wanted = shlex.split(os.environ.get("CC", ""))
    for command in [wanted] if wanted else (["cc"], ["gcc"], ["clang"]):
        if shutil.which(command[0]):
            return command
    if wanted:
        raise CannotBuildError(f"the C compiler of CC={os.environ['CC']!r} was not found")
    raise CannotBuildError("no C compiler was found: install gcc or clang, or set CC")


def run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise CannotBuildError(f"`{shlex.join(command)}` ended with {done.returncode}:\n{done.stderr.strip()}")


def build(library: Path = LIBRARY, extra: Sequence[str] = ()) -> Path:
    """Compile and link the kernels into `library`, which is replaced only when all of it worked."""
    cc = compiler()
    on_x86 = platform.machine().lower() in ("x86_64", "amd64")
    family = X86 if on_x86 else {"baseline": []}
    with tempfile.TemporaryDirectory() as folder:
        threads = ["-fopenmp"]
        try:  # clang on some systems comes without OpenMP: the kernels then have one thread
            run([*cc, *threads, "-fsyntax-only", "-x", "c", "-include", "omp.h", os.devnull])
        except CannotBuildError:
            threads = []
        common = [*cc, *FLAGS, *threads, *extra]
        jobs, objects = [], []
        for isa, flags in family.items():
            for name, real in (("f32", "float"), ("f64", "double")):
                define = [f"-Dreal={real}", f"-DNAME(x)=lambda_##x##_{name}_{isa}"]
                if real == "float":  # the same function in double, for examples that need it
                    define.append(f"-DNAME_F64(x)=lambda_##x##_f64_{isa}")
                for source in ("position", "direct", "fft", "content", "norm"):
                    objects.append(f"{folder}/{source}_{isa}_{name}.o")
                    jobs.append([*common, *flags, *define, "-c", str(SOURCES / f"{source}.c"), "-o", objects[-1]])
        objects.append(f"{folder}/dispatch.o")
        variants = ["-DWITH_X86"] if on_x86 else []
        jobs.append([*common, *variants, "-c", str(SOURCES / "dispatch.c"), "-o", objects[-1]])
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(run, jobs))
        # Linked into a sibling and renamed: a library is never half-written, and one that is loaded does not change.
        temporary = library.with_name(f"{library.name}.{os.getpid()}.tmp")
        try:
            run([*common, "-shared", *objects, "-lm", "-o", str(temporary)])
            os.replace(temporary, library)
        finally:
            temporary.unlink(missing_ok=True)
    return library


def main() -> None:
    try:
        print(f"built {build()}")
    except CannotBuildError as error:
        sys.exit(f"the kernels were not built: {error}")


if __name__ == "__main__":
    main()
