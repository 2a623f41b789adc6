"""Reports survive their file, and a failed write leaves the old one."""

import pytest

from lambdanets.bench.report import Report, write_atomically


def test_a_report_reads_back(tmp_path):
    report = Report({"cpu": "any"}, "lambdanets bench plans", {"rounds": 3}, [{"ratio": 1.5}])
    report.write(tmp_path / "r.json")
    assert Report.read(tmp_path / "r.json") == report


@pytest.mark.parametrize("text", ["", "[]", '{"rows": []}'])
def test_what_is_not_a_report_is_refused(tmp_path, text):
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(ValueError, match="is not a report of lambdanets bench"):
        Report.read(tmp_path / "r.json")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "r.json"
    write_atomically(path, b"old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
