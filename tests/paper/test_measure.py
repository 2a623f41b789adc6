"""What this machine measures stands beside what the paper prints, and neither is taken for the other."""

import json
import signal
import subprocess

import pytest
import torch

from lambdanets.bench.memory import RESET_PEAK
from lambdanets.cli.main import main
from lambdanets.paper import measure
from lambdanets.paper.comparison import comparison
from lambdanets.paper.measure import TABLES, Measured, Settings, jobs, peak, rows
from lambdanets.paper.tables import printed


def test_every_network_with_a_throughput_is_measured():
    assert [job.label for job in jobs(None, Settings())] == ["Table 4", "Table 12", "Table 13"]
    assert rows(4) == list(printed(4, "throughput_ex_s"))
    assert rows(12) == list(printed(12, "throughput_ex_s"))
    assert rows(13) == list(printed(13, "throughput_ex_s"))


def test_the_command_measures(tmp_path, capsys):
    file = tmp_path / "measured.json"
    main(["paper", "4", "--measure", "--quick", "--threads", "1", "--json", str(file)])
    shown, report = capsys.readouterr().out, json.loads(file.read_text())
    assert report.keys() == {"entries", "measured", "settings", "machine"}
    assert report["settings"] == {"rounds": 1, "quick": True}
    assert report["machine"]["threads"] == torch.get_num_threads() == 1
    first, *others = report["measured"]
    assert [row["row"] for row in (first, *others)] == rows(4)
    for row in (first, *others):
        assert row["image_size"] == 64
        assert row["ratio"] == pytest.approx(row["images_per_s"] / first["images_per_s"])
        assert row["published_ratio"] == pytest.approx(row["published_per_s"] / 960)
        assert f"{row['images_per_s']:.2f}" in shown
    assert "global self-attention (not measured)" in shown
    assert "quick: not meaningful" in shown


@pytest.mark.skipif(not RESET_PEAK.exists(), reason="this system does not tell the peak memory of a process")
def test_peak_memory_of_a_row():
    assert 1e6 < peak(12, "CCLL", quick=True) < 1e9


@pytest.mark.parametrize(("ended", "raises"), [(-signal.SIGKILL, False), (1, True)])
def test_a_step_that_takes_too_much_memory_has_no_peak(monkeypatch, ended, raises):
    def fail(*_, **__):
        raise subprocess.CalledProcessError(ended, ["python"])

    monkeypatch.setattr(measure, "peak_in_fresh_process", fail)
    if raises:
        with pytest.raises(subprocess.CalledProcessError):
            peak(12, "CCLL")
    else:
        assert peak(12, "CCLL") is None


def test_ratios_are_to_the_first_network_of_the_table():
    measured = [Measured(4, row, 224, 8, 10.0, 1.0, 960.0, 1.0, 5_000_000) for row in rows(4)]
    lines = {line[0]: line[1:] for line in comparison(4, measured)}
    assert lines["lambda k=8"] == ("224 x 224", "10.00", "1.00", "1640", "1.71", "5")
    assert lines["global self-attention (not measured)"] == (None,) * 6


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("9", "--measure"), "only Tables 4, 12 and 13 have throughputs to measure, got 9"),
        (("9", "--quick"), "--rounds, --threads and --quick need --measure"),
        (("9", "--rounds", "2"), "--rounds, --threads and --quick need --measure"),
        (("--rounds", "0", "--measure"), "--rounds: must be a positive integer, got '0'"),
        (("1",), "2 to 13, got 1"),
    ],
)
def test_a_mistake_is_one_line(capsys, arguments, says):
    with pytest.raises(SystemExit) as ended:
        main(["paper", *arguments])
    captured = capsys.readouterr()
    assert ended.value.code == 2
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert says in captured.err


def test_only_tables_with_throughputs_are_measured():
    assert all(printed(table, "throughput_ex_s") for table in TABLES)
