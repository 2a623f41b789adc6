"""What can be counted is counted, and agrees with the paper except where that is known and said."""

import json

import pytest

from lambdanets.cli.main import main
from lambdanets.paper import regenerate
from lambdanets.paper.networks import KNOWN, networks
from lambdanets.paper.tables import published


@pytest.fixture(scope="module")
def entries():
    return regenerate()


def verdicts(entries, *quantities):
    return [entry.verdict for entry in entries if entry.quantity in quantities and entry.ours is not None]


def test_so_many_rows_match(entries):
    others = [entry for entry in entries if entry.table == 3 and "attention" in entry.row and "SE" not in entry.row]
    parameters = verdicts([entry for entry in entries if entry not in others], "params_M")
    assert (len(parameters), parameters.count("matches")) == (41, 34)
    assert verdicts(others, "params_M") == ["differs", "matches", "matches", "differs", "differs"]
    assert verdicts(entries, "flops_G") == ["matches"] * 10
    assert verdicts(entries, "memory_GB") == ["matches"] * 5
    assert verdicts(entries, "time", "space") == ["matches"] * 8


def test_what_differs_has_a_known_reason(entries):
    differing = {(entry.table, entry.row) for entry in entries if entry.verdict == "differs"}
    assert differing == KNOWN.keys()
    assert all(entry.reason for entry in entries if entry.verdict == "differs")


def test_accuracies_and_throughputs_are_never_ours(entries):
    countable = ("params_M", "flops_G", "memory_GB", "time", "space")
    measured = [entry for entry in entries if entry.quantity not in countable]
    assert len(measured) > 100
    assert all(entry.ours is None and entry.verdict == "the paper's" for entry in measured)


def test_every_network_is_a_row():
    assert networks().keys() <= {(table, row) for table, row, _, _ in published()}


@pytest.mark.unchecked
def test_the_command(tmp_path, capsys):
    file = tmp_path / "paper.json"
    main(["paper", "8", "--json", str(file)])
    shown = capsys.readouterr().out
    assert "the same network has 15.0 in the other tables" in shown
    assert "5 of 6 counted figures match" in shown
    report = json.loads(file.read_text())
    assert report.keys() == {"entries"}, "nothing was measured"
    assert {entry["table"] for entry in report["entries"]} == {8}
    with pytest.raises(SystemExit) as ended:
        main(["paper", "14"])
    assert ended.value.code == 2
    assert "2 to 13, got 14" in capsys.readouterr().err
