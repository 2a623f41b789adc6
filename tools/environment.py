#!/usr/bin/env python3
"""Build the development environment in .venv, once; every make target calls this first.

The environment is finished when .venv/fingerprint holds the hash of all that decides its contents. That file is
written last, so an interrupted or failed set-up has none and the next run starts from an empty folder. A lock keeps
two make commands that start together from building at the same time.
"""

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
FINGERPRINT = VENV / "fingerprint"
PYTHON = VENV / "bin" / "python"
FIX_TORCHVISION = "tools/fix_torchvision_cpu.py"
INPUTS = ("pyproject.toml", "constraints.txt", "hatch_build.py", "tools/environment.py", FIX_TORCHVISION)
KERNELS = ROOT / "src" / "lambdanets" / "kernels"


def wanted_fingerprint() -> str:
    digest = hashlib.sha256()
    for name in INPUTS:
        digest.update((ROOT / name).read_bytes())
    # An editable install points back at this folder, so a moved checkout needs a new environment.
    digest.update(f"{sys.version} {sys.base_prefix} {ROOT}".encode())
    return digest.hexdigest()


def is_ready(fingerprint: str) -> bool:
    return PYTHON.exists() and FINGERPRINT.exists() and FINGERPRINT.read_text() == fingerprint


def pip_install(*arguments: str) -> None:
    command = [str(PYTHON), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    subprocess.run([*command, "--constraint", str(ROOT / "constraints.txt"), *arguments], cwd=ROOT, check=True)


def build(fingerprint: str) -> None:
    print("setting up .venv (about a minute, once)", flush=True)
    FINGERPRINT.unlink(missing_ok=True)  # first, so that no half-removed environment looks finished
    shutil.rmtree(VENV, ignore_errors=True)
    venv.create(VENV, with_pip=True)
    # The build backend comes from the constraints too, not from a build environment of its own.
    pip_install("hatchling", "editables")
    pip_install("--no-build-isolation", "--editable", ".[dev]")
    subprocess.run([str(PYTHON), str(ROOT / FIX_TORCHVISION)], check=True)
    temporary = FINGERPRINT.with_suffix(".tmp")
    temporary.write_text(fingerprint)
    os.replace(temporary, FINGERPRINT)


def refresh_kernels() -> None:
    """Compile the kernels again when a source of theirs is newer; without a compiler there are none to refresh."""
    library = KERNELS / "liblambdanets.so"
    sources = [KERNELS / "build.py", *(KERNELS / "native").iterdir()]
    if library.exists() and library.stat().st_mtime < max(source.stat().st_mtime for source in sources):
        print("compiling the kernels", flush=True)
        subprocess.run([str(PYTHON), str(KERNELS / "build.py")], check=True)


def main() -> None:
    if sys.version_info < (3, 11):
        sys.exit(f"lambdanets needs Python 3.11 or newer, got {sys.version.split()[0]}; try make PYTHON=python3.11")
    fingerprint = wanted_fingerprint()
    if is_ready(fingerprint):
        refresh_kernels()
        return
    # Ended by a signal, take pip along: an orphan would go on writing into .venv.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with (ROOT / ".venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_ready(fingerprint):
            return
        try:
            build(fingerprint)
        except KeyboardInterrupt:
            sys.exit(130)
        except subprocess.CalledProcessError as error:
            command = " ".join(map(str, error.cmd))
            sys.exit(f"set-up failed: `{command}` ended with {error.returncode}; fix the cause and run make again")


if __name__ == "__main__":
    main()
