"""Reports survive their file."""

import pytest

from lambdanets.bench.report import Report


def test_a_report_reads_back(tmp_path):
    report = Report({"cpu": "any"}, "lambdanets bench plans", {"rounds": 3}, [{"ratio": 1.5}])
    report.write(tmp_path / "r.json")
    assert Report.read(tmp_path / "r.json") == report


@pytest.mark.parametrize("text", ["", "[]", '{"rows": []}'])
def test_what_is_not_a_report_is_refused(tmp_path, text):
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(ValueError, match="is not a report of lambdanets bench"):
        Report.read(tmp_path / "r.json")
