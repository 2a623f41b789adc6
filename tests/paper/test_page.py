"""The page: every figure is on it, whose it is stands beside it, and it needs nothing else."""

import re
from base64 import b64decode
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from lambdanets.cli.main import main
from lambdanets.paper.complexity import LAWS
from lambdanets.paper.entries import PublishedEntry
from lambdanets.paper.measure import Measured, Measurement, Settings, rows
from lambdanets.paper.networks import networks
from lambdanets.paper.page import page
from lambdanets.paper.pictures.drawing import Point, label, new_figure, text_box
from lambdanets.paper.sizes import Counted, count_networks
from lambdanets.paper.tables import published

VOID = {"meta", "img"}
MACHINE = {"cpu": "A <CPU> & more", "threads": 1, "kernels": None, "versions": {"torch": "2"}}


class Reader(HTMLParser):
    """Cells of the tables, pictures, and a stack that must be empty in the end."""

    def __init__(self, text):
        super().__init__()
        self.open, self.lines, self.pictures, self.addresses = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.addresses += [found[name] for name in ("src", "href") if name in found]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "img":
            self.pictures.append(found)
        if tag == "tr":
            self.lines.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "tr" in self.open:
            self.lines[-1] += f"|{data}"


# What is counted, and how well, is in the tests of the tables; here it only has to be shown.
COUNTED = [
    Counted([(9, "3x3")], 14.95, 5.71),
    Counted([(3, "conv"), (12, "CCCC")], 25.56, 8.18),
    Counted([(13, "ResNet-101 224")], 44.61, 16.31),
]


@pytest.fixture(scope="module")
def entries():
    found = [PublishedEntry(2, law.layer, law.quantity, law.formula, law.formula, "matches") for law in LAWS]
    for table, row, quantity, value in published():
        if table in (9, 12) and quantity in ("flops_G", "params_M"):
            found.append(
                PublishedEntry(table, row, quantity, value, float(value) + 0.0625, "differs", "it was <rounded>")
            )
        else:
            found.append(PublishedEntry(table, row, quantity, value, None, "the paper's"))
    return found


@pytest.fixture(scope="module")
def text(entries):
    return page(entries, COUNTED)


def test_every_figure_is_on_the_page(entries, text):
    reader = Reader(text)
    assert reader.open == []
    lines = "\n".join(reader.lines)
    for entry in entries:
        assert f"|{entry.row}|" in lines
        words = f"|{entry.published}|{entry.ours_in_words or '-'}|{entry.verdict_in_words}"
        assert words in lines
    assert lines.count("|top-1, %") == sum(entry.quantity == "top1" for entry in entries)
    assert "formulas match counted operations" in text


def test_what_is_the_papers_says_so(text):
    lines = [line for line in Reader(text).lines if re.search(r"top-1|AP|TPUs", line)]
    assert len(lines) > 100
    assert all("(the paper's)" in line and line.endswith("|the paper's") for line in lines)


def test_four_pictures_are_part_of_the_page(text):
    reader = Reader(text)
    assert [picture["alt"] for picture in reader.pictures] == [
        "Sizes of the networks",
        "Scope",
        "Placement",
        "Speed and accuracy",
    ]
    for picture in reader.pictures:
        kind, _, content = picture["src"].partition(";base64,")
        assert kind == "data:image/svg+xml"
        assert ElementTree.fromstring(b64decode(content)).tag.endswith("svg")
    assert all(address.startswith("data:") for address in reader.addresses), "nothing is fetched"
    assert "<script" not in text


def test_a_page_is_the_same_every_time(entries, text):
    assert page(entries, COUNTED) == text


@pytest.mark.parametrize("quick", [False, True])
def test_measured_speeds_are_not_the_papers(entries, quick):
    measured = [Measured(12, row, 224, 8, 10.0 + i, 1.0, 1.0, 1.0, None) for i, row in enumerate(rows(12))]
    text = page(entries, [], Measurement(MACHINE, Settings(quick=quick), measured))
    reader = Reader(text)
    assert reader.open == []
    assert len(reader.pictures) == 3, "no networks were counted"
    assert "A &lt;CPU&gt; &amp; more" in text
    assert "Accuracies are the paper&#x27;s; speeds are images/s" in text
    assert ("mean nothing" in text) == quick


def test_a_part_has_the_pictures_that_it_can_have(entries):
    assert Reader(page([entry for entry in entries if entry.table == 2], [])).pictures == []
    reader = Reader(page([entry for entry in entries if entry.table == 9], COUNTED[:1]))
    assert [picture["alt"] for picture in reader.pictures] == ["Sizes of the networks", "Scope"]
    reader = Reader(page([entry for entry in entries if entry.table == 6], COUNTED[2:]))
    assert [picture["alt"] for picture in reader.pictures] == ["Sizes of the networks"]


def test_text_is_escaped():
    entry = PublishedEntry(8, "<b>", "top1", "1 & 2", None, "the paper's", '"why" <i>')
    text = page([entry], [])
    assert "&lt;b&gt;" in text
    assert "1 &amp; 2" in text
    assert "<i>" not in text


def test_labels_do_not_overlap():
    _, (axes,) = new_figure(6.0, 4.0, 1)
    points = [Point(x / 10, y / 10, f"label {x} {y}") for x in range(3) for y in range(3)]
    axes.scatter([point.x for point in points], [point.y for point in points])
    label(axes, points)
    boxes = [text_box(note) for note in axes.texts]
    assert len(boxes) == 9
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


@pytest.mark.unchecked
@pytest.mark.parametrize("option", ["--html", "--json"])
@pytest.mark.parametrize("target", ["", "no/such/folder/f", "file/f"])
def test_a_target_that_cannot_be_written_is_one_line(tmp_path, capsys, option, target):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(SystemExit) as ended:
        main(["paper", "9", option, str(tmp_path / target)])
    captured = capsys.readouterr()
    assert ended.value.code == 2
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "it is a folder, or its folder is missing or read-only" in captured.err


def test_networks_of_all_layers_are_counted():
    """Also those whose layers are no lambda layers."""
    counted = count_networks(3)
    assert {row for network in counted for row in network.rows} == {place for place in networks() if place[0] == 3}
    assert all(network.flops > 1 for network in counted)


@pytest.mark.unchecked
def test_the_command_writes_the_page_or_says_why_not(tmp_path, capsys, monkeypatch):
    file = tmp_path / "page.html"
    command = ["paper", "6", "--html", str(file)]
    main(command)
    assert "1 of 1 counted figures match" in capsys.readouterr().out
    reader = Reader(file.read_text())
    assert [picture["alt"] for picture in reader.pictures] == ["Sizes of the networks"]
    assert list(tmp_path.iterdir()) == [file]

    def fail(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lambdanets.cli.parser.write_atomically", fail)
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code == 1
    assert capsys.readouterr().err.endswith("page.html cannot be written: No space left on device\n")
