"""The command `lambdanets`: what it prints, and one clear line with exit code 2 for a mistake."""

import json
import os
import subprocess
import sys

import pytest
import torch

import lambdanets
from lambdanets.cli import bench
from lambdanets.cli.main import main
from lambdanets.kernels import unavailable

# The types of what users type are checked by the command, whose messages are what is tested here.
pytestmark = pytest.mark.unchecked


def mistake(capsys, *arguments: str) -> str:
    """The line on stderr that a wrong command ends with."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    captured = capsys.readouterr()
    assert ended.value.code == 2
    assert captured.out == ""
    assert captured.err.count("\n") == 1, "one line, not a usage or a traceback"
    return captured.err


@pytest.mark.parametrize(
    "arguments", [(), ("info",), ("plan",), ("bench",), *(("bench", name) for name in (*bench.SUMMARIES, "picture"))]
)
def test_every_command_has_help(capsys, arguments):
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--help"])
    assert ended.value.code == 0
    assert f"usage: {' '.join(['lambdanets', *arguments])}" in capsys.readouterr().out


def test_the_program_runs():
    run = subprocess.run([sys.executable, "-m", "lambdanets.cli", "--version"], capture_output=True, text=True)
    assert run.stdout == f"lambdanets {lambdanets.__version__}\n"


def test_info_tells_versions_and_kernels(capsys, monkeypatch):
    main(["info"])
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert shown["lambdanets"] == lambdanets.__version__
    assert {"python", "torch", "cpu", "threads", "timm", "lambda-networks"} <= shown.keys()
    assert shown["kernels"].startswith(("native, for ", "none: "))

    monkeypatch.setattr("lambdanets.kernels.unavailable", lambda: "they were not built, see `build`")
    main(["info"])
    assert "none: they were not built, see `build`" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["5x7", "--d", "6", "--h", "2", "--scope", "3", "--batch", "2", "--training"],
        ["31", "--dims", "1", "--d", "8", "--d-out", "12", "--scope", "global", "--causal", "--u", "2"],
        ["5", "--dims", "3", "--d", "8", "--scope", "3x1x5", "--dilation", "2", "--stride", "1x2x2", "--k", "3"],
    ],
)
def test_plan_marks_the_plan_that_is_taken(capsys, arguments):
    main(["plan", *arguments])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(lambdanets.ops.plans.PLANS)
    assert sum(line.startswith("->") for line in lines) == 1
    assert all("measured" in line or "cannot:" in line for line in lines)


def test_plan_measures_what_it_has_patience_for(capsys):
    main(["plan", "5", "--d", "8", "--patience", "0"])
    able = [plan for plan in lambdanets.ops.plans.PLANS.values() if plan.is_portable or unavailable() is None]
    assert capsys.readouterr().out.count("not measured") == len(able)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "required: COMMAND"),
        (("paint",), "invalid choice: 'paint'"),
        (("plan",), "required: SIZE"),
        (("plan", "5x"), "must be like 56 or 56x40, got '5x'"),
        (("plan", "0"), "size must be a positive integer, got size=0"),
        (("plan", "5x7x3"), "size must be one integer or 2 of them"),
        (("plan", "5", "--d", "10", "--h", "4"), "d_out must be divisible by h, got d_out=10, h=4"),
        (("plan", "5", "--scope", "4"), "scope must be odd on every axis"),
        (("plan", "5", "--scope", "wide"), "argument --scope: must be like"),
        (("plan", "5", "--k", "-1"), "argument --k: must be a positive integer, got '-1'"),
        (("plan", "5", "--patience", "long"), "must be a number of seconds, got 'long'"),
        (("bench",), "required: BENCHMARK"),
        (("bench", "layers", "--rounds", "0"), "--rounds: must be a positive integer, got '0'"),
        (("bench", "layers", "--format", "diagonal"), "invalid choice: 'diagonal'"),
        (
            ("bench", "layers", "--json", "no/such/folder/f.json"),
            "f.json cannot be written: it is a folder, or",
        ),
        (("bench", "picture", "no-such.json", "out.png"), "no-such.json"),
    ],
)
def test_a_mistake_is_one_line(capsys, arguments, says):
    line = mistake(capsys, *arguments)
    assert says in line
    assert line.startswith("lambdanets")


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "30000", "--batch", "100000", "--patience", "1"),
        ("profile", "resnet14_small", "--size", "10000000"),
    ],
)
def test_too_little_memory_is_one_line(capsys, arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 1
    assert capsys.readouterr().err == f"lambdanets {arguments[0]}: out of memory: use a smaller size or batch\n"


def test_a_reader_who_has_seen_enough_is_no_error():
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-m", "lambdanets.cli", "info"], stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no device that is always full")
def test_no_place_for_output_is_one_line():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "lambdanets.cli", "info"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "lambdanets info: [Errno 28] No space left on device\n")


def test_a_file_that_cannot_be_read_is_one_line(capsys, monkeypatch):
    def fail(options):
        raise PermissionError(13, "Permission denied", "weights")

    monkeypatch.setattr("lambdanets.cli.info.run", fail)
    with pytest.raises(SystemExit) as ended:
        main(["info"])
    assert ended.value.code == 1
    assert capsys.readouterr().err == "lambdanets info: [Errno 13] Permission denied: 'weights'\n"


def test_a_missing_package_is_one_sentence(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.delitem(sys.modules, "lambdanets.bench.picture", raising=False)
    monkeypatch.delitem(sys.modules, "lambdanets.bench.picture_of_sizes", raising=False)
    with pytest.raises(SystemExit) as ended:
        main(["bench", "picture", "report.json", "picture.png"])
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert said == 'lambdanets bench picture: matplotlib is not installed: pip install ".[bench]"\n'


def test_fewer_instructions_are_for_everyone(tmp_path):
    """Limits are read when libraries load: the benchmark runs in a process of its own, which has them."""
    if unavailable() is not None or torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        pytest.skip("a CPU without AVX2, or no kernels")
    report = tmp_path / "limit.json"
    with pytest.raises(SystemExit) as ended:
        main(["bench", "limit", "--quick", "--rounds", "1", "--instructions", "avx2", "--json", str(report)])
    assert ended.value.code == 0
    content = json.loads(report.read_text())
    assert content["machine"]["kernels"] == "avx2"
    assert content["machine"]["torch"] == "AVX2"
    assert "--instructions avx2" in content["command"]
