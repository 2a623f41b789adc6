"""tools/compare_checkouts.py: its statistics, whose turn it is, and a checkout against itself."""

import json
import os
import subprocess
import sys
from math import comb
from pathlib import Path

import pytest

from lambdanets.kernels.build import LIBRARY

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import compare_checkouts
from compare_checkouts import Comparison, compare, interval, verdict

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("n", "j", "coverage"),
    [(1, 1, 0.0), (5, 1, 0.9375), (6, 1, 0.96875), (8, 1, 1 - 2 / 256), (9, 2, 1 - 20 / 512), (15, 4, 0.96484375)],
)
def test_intervals_are_between_order_statistics(n, j, coverage):
    values = [float(i * i) for i in reversed(range(1, n + 1))]
    assert interval(values) == (j * j, (n + 1 - j) ** 2, pytest.approx(coverage))


def test_intervals_cover_the_median_as_often_as_they_say():
    """Of all 2^n ways for n values to fall below or above the median, each as likely."""
    n = 9
    low, high, coverage = interval(range(n))
    covered = sum(comb(n, below) for below in range(n + 1) if low < below <= high)
    assert coverage == pytest.approx(covered / 2**n)
    assert coverage >= 0.95


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.031, 1.2, "slower"),
        (1.03, 1.2, ""),
        (0.9, 1.5, ""),
        (0.99, 1.01, ""),
        (0.5, 0.97, ""),
        (0.5, 0.969, "faster"),
    ],
)
def test_the_whole_interval_decides(low, high, expected):
    assert verdict(low, high, 0.96) == expected
    assert verdict(low, high, 0.94) == ""


def test_ratios_are_paired_within_rounds():
    """A machine that gets slower from round to round changes no ratio."""
    slowdown = [1.0, 7.0, 2.0, 3.0, 9.0, 4.0, 6.0, 5.0, 8.0]
    old = [{"a": 10 * s, "b": 10 * s, "c": 10 * s} for s in slowdown]
    noise = [1.0, 0.5, 1.01, 0.99, 1.02, 0.98, 2.0, 1.0, 1.0]
    new = [
        {"a": 11 * s, "b": 10 * s * n, "c": 9 * s * n if n == 2.0 else 9 * s}
        for s, n in zip(slowdown, noise, strict=True)
    ]
    a, b, c = compare(old, new)
    assert a == Comparison("a", 50.0, 55.0, pytest.approx(1.1), pytest.approx(1.1), pytest.approx(1.1), "slower")
    assert (b.ratio, b.low, b.high, b.verdict) == (1.0, pytest.approx(0.98), pytest.approx(1.02), "")
    assert (c.ratio, c.verdict) == (pytest.approx(0.9), "faster")


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, compare_checkouts.__file__, *arguments], capture_output=True, text=True)


@pytest.mark.skipif(not LIBRARY.exists(), reason="the kernels were not built")
@pytest.mark.parametrize(("rows", "count"), [("layers", 4), ("models", 2), ("training", 1)])
def test_a_checkout_is_compared_with_itself(tmp_path, rows, count):
    """Two rounds have no verdict: this test does not depend on how long anything takes."""
    report = tmp_path / "report.json"
    options = ["--rows", rows, "--rounds", "2", "--quick", "--threads", "1", "--json", str(report)]
    done = run(str(ROOT), str(ROOT), *options)
    assert done.returncode == 0, done.stderr
    content = json.loads(report.read_text())
    assert content["settings"].startswith("1 threads, kernels ")
    assert len(content["rows"]) == count
    for row in content["rows"]:
        old, new = ([times[row["row"]] for times in content[which]] for which in ("old_ms", "new_ms"))
        ratios = [after / before for before, after in zip(old, new, strict=True)]
        assert row["ratio"] == pytest.approx(sum(ratios) / 2)
        assert (row["low"], row["high"], row["verdict"]) == (min(ratios), max(ratios), "")
        assert row["row"] in done.stdout
    assert "round 2 of 2" in done.stderr


def test_checkouts_take_turns(monkeypatch, tmp_path):
    turns = []

    def measured(checkout, options):
        turns.append(checkout.name)
        return {"ms": {"row": 2.0 if checkout.name == "new" else 1.0}, "threads": 1, "kernels": "avx2"}

    monkeypatch.setattr(compare_checkouts, "measured", measured)
    monkeypatch.setattr(compare_checkouts, "refresh_kernels", lambda *_: None)
    assert compare_checkouts.main([str(tmp_path / "old"), str(tmp_path / "new"), "--rounds", "6"]) == 1
    assert turns == ["old", "new", "new", "old"] * 3


def test_kernels_are_compiled_when_they_are_older_than_their_sources(tmp_path, capfd):
    kernels = tmp_path / "src" / "lambdanets" / "kernels"
    (kernels / "native").mkdir(parents=True)
    source, library = kernels / "native" / "lambda.c", kernels / "liblambdanets.so"
    source.touch()
    (kernels / "build.py").write_text(f"open({str(library)!r}, 'a').write('built ')")

    for expected in ("built ", "built "):  # missing, then new enough
        compare_checkouts.refresh_kernels(tmp_path, sys.executable)
        assert library.read_text() == expected
    assert capfd.readouterr().err == f"compiling the kernels of {tmp_path}\n"
    library.write_text("")
    newer = library.stat().st_mtime + 10
    os.utime(source, (newer, newer))
    compare_checkouts.refresh_kernels(tmp_path, sys.executable)
    assert library.read_text() == "built "


def test_what_cannot_be_compared_is_one_line(tmp_path):
    done = run(str(tmp_path), str(ROOT))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"{tmp_path} is no checkout of lambdanets" in done.stderr
