"""Tar shards, whole and damaged."""

import io
import json
import pickle
import random
import tarfile
from functools import partial
from pathlib import Path

import pytest
import torch
from pictures import noise, picture, refusal
from streams import bad_items, check_order, check_parts, items, names

from lambdanets.data.images import ImageDataConfig
from lambdanets.data.images.sources import open_split
from lambdanets.data.images.sources.webdataset_shards import LARGEST, shuffled
from lambdanets.data.splits import BadItemError, Item, Stream

Files = dict[str, bytes]


def write_shard(path: Path, files: Files, mode: str = "w") -> None:
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def some(numbers: range) -> Files:
    """Images with the labels 0, 1, 2, 0, 1, 2 ..."""
    files: Files = {}
    for number in numbers:
        files[f"set/{number:04}.png"] = picture(number)
        files[f"set/{number:04}.cls"] = b"%d\n" % (number % 3)
    return files


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Four shards of five images."""
    for shard in range(4):
        write_shard(tmp_path / f"train-{shard:03}.tar", some(range(5 * shard, 5 * shard + 5)))
    write_shard(tmp_path / "val-000.tar", some(range(100, 103)))
    (tmp_path / "classes.txt").write_text("a\nb\nc\n")
    return tmp_path


def open_stream(root: Path | str, split: str = "train", **options: object) -> Stream:
    stream = open_split(ImageDataConfig(source="webdataset", root=str(root), **options), split)
    assert isinstance(stream, Stream)
    return stream


def only_bad(stream: Stream) -> BadItemError:
    (bad,) = bad_items(stream)
    with pytest.raises(BadItemError) as caught:
        bad.read()
    return caught.value


def test_images_and_labels(shards):
    stream = open_stream(shards)
    assert (stream.classes, stream.channels, stream.length) == (("a", "b", "c"), 3, None)
    found = items(stream)
    assert len(found) == 20
    for item in found:
        number = int(item.name[-4:])
        assert item.name == str(shards / f"train-{number // 5:03}.tar/set/{number:04}")
        image, label = item.read()
        assert label == number % 3
        assert torch.equal(image, torch.from_numpy(noise(number)).permute(2, 0, 1))
    assert open_stream(shards, samples=17).length == 17
    assert open_stream(shards, "val", samples=17).length is None


def test_patterns(shards):
    stream = open_stream(shards / "train-{001..002}.tar")
    assert sorted(names(stream)) == [f"{number:04}" for number in range(5, 15)]
    assert len(names(open_stream(shards / "train-{001..002}.tar", "val"))) == 3
    assert f"{shards / 'train-004.tar'} does not exist" in refusal(
        "train", source="webdataset", root=str(shards / "train-{003..005}.tar")
    )


def test_validation_keeps_its_order(shards):
    stream = open_stream(shards, "val")
    assert names(stream) == names(stream, seed=1, epoch=2) == ["0100", "0101", "0102"]
    (shards / "val-000.tar").rename(shards / "test-000.tar")
    assert names(open_stream(shards, "val")) == ["0100", "0101", "0102"]


def test_order_depends_on_seed_and_epoch_alone(shards):
    check_order(partial(open_stream, shards))


@pytest.mark.parametrize("parts", [2, 3, 4, 7])
def test_parts_are_disjoint_and_complete(shards, parts):
    check_parts(partial(open_stream, shards), parts)
    stream = open_stream(shards)
    shards_of = [{e.name.split("/set/")[0] for e in items(stream, part=part, parts=parts)} for part in range(parts)]
    if parts <= 4:
        assert sum(map(len, shards_of)) == 4


def test_buffer_keeps_everything(monkeypatch):
    monkeypatch.setattr("lambdanets.data.images.sources.webdataset_shards.BUFFER", 5)
    all_of_them = [Item(str(number), lambda: None) for number in range(23)]
    found = [int(item.name) for item in shuffled(iter(all_of_them), random.Random(0))]
    assert sorted(found) == list(range(23))
    assert found != list(range(23))
    assert all(number <= place + 5 for place, number in enumerate(found))  # none comes before it was in the buffer


def test_labels_from_json_and_notes_between(tmp_path):
    files = {"readme.txt": b"hello", "a/0.JPG": picture(0, "JPEG"), "a/0.json": json.dumps({"label": 1}).encode()}
    files |= {"a/._0.jpg": b"macOS", "a/1.caption.txt": b"a cat", "a/1.webp": picture(1, "WEBP"), "a/1.cls": b"0"}
    files |= {"a/2.pyd": pickle.dumps(pytest.fail), "a/3.cls": b"0"}
    write_shard(tmp_path / "train.tar.gz", files, "w:gz")
    (tmp_path / "train.tar.gz").rename(tmp_path / "train.tar")
    (tmp_path / "classes.txt").write_text("a\nb")
    found = sorted(items(open_stream(tmp_path)), key=lambda item: item.name)
    assert [(item.name[-3:], item.read().label) for item in found] == [("a/0", 1), ("a/1", 0)]
    assert [item.read().image.shape for item in found] == [(3, 11, 13)] * 2


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        ({}, "neither cls nor json beside png"),
        ({"cls": b"two"}, "its label cannot be read: invalid literal"),
        ({"cls": b"9" * 10_000}, "its label cannot be read: Exceeds the limit"),
        ({"cls": b"3"}, "its label is 3, but there are 3 classes"),
        ({"cls": b"-1"}, "its label is -1, but there are 3 classes"),
        ({"json": b"{"}, "its label cannot be read"),
        ({"json": b"[1]"}, '"label" in its json is None'),
        ({"json": b'{"label": "a"}'}, "\"label\" in its json is 'a'"),
        ({"json": b"[" * 100_000}, "its label cannot be read"),
    ],
)
def test_labels_that_cannot_be(shards, label, reason):
    files = some(range(2)) | {"x.png": picture()} | {f"x.{kind}": content for kind, content in label.items()}
    write_shard(shards / "train-000.tar", files)
    stream = open_stream(shards / "train-000.tar")
    assert len(names(stream)) == 3
    bad = only_bad(stream)
    assert bad.name == str(shards / "train-000.tar/x")
    assert reason in bad.reason


def test_damaged_image(shards):
    write_shard(shards / "train-000.tar", some(range(2)) | {"x.png": picture()[:99], "x.cls": b"1"})
    (item,) = (e for e in items(open_stream(shards / "train-000.tar")) if e.name.endswith("x"))
    with pytest.raises(BadItemError, match=r"train-000\.tar/x\.png: "):
        item.read()


def test_truncated_shard(shards):
    """What came before can be used, and somebody hears of the rest."""
    path = shards / "train-000.tar"
    with tarfile.open(path) as archive:
        ends = [member.offset_data + (member.size + 511) // 512 * 512 for member in archive]
    whole = path.read_bytes()
    for cut in [*range(0, ends[-1], 700), *ends]:
        path.write_bytes(whole[:cut])
        stream = open_stream(path)
        found = items(stream)
        bad = only_bad(stream)
        assert bad.name == str(path)
        assert "the rest of this shard is damaged" in bad.reason
        before = sum(end <= cut for end in ends[1::2])
        assert before - 1 <= len(found) - 1 <= before
    assert len(items(open_stream(shards))) >= 15


def test_header_in_the_middle(shards):
    """Python's own reader would take this for the end, and nobody would hear of it."""
    path = shards / "train-000.tar"
    with tarfile.open(path) as archive:
        header = archive.getmembers()[4].offset
    content = bytearray(path.read_bytes())
    content[header + 3] ^= 1
    path.write_bytes(content)
    assert only_bad(open_stream(path)).name == str(path)


def test_claimed_sizes(shards):
    path = shards / "train-000.tar"
    for size in (LARGEST + 1, 2**60):
        member = tarfile.TarInfo("x.png")
        member.size = size
        path.write_bytes(member.tobuf() + bytes(10_000))
        assert f"x.png claims to have {size} bytes" in only_bad(open_stream(path)).reason
    member.size = LARGEST
    path.write_bytes(member.tobuf() + bytes(10_000))
    assert "damaged" in only_bad(open_stream(path)).reason


def test_mutated_shards(shards):
    path, generator = shards / "train-000.tar", random.Random(0)
    whole = path.read_bytes()
    for _ in range(200):
        changed = bytearray(whole)
        for _ in range(generator.choice([1, 3, 20])):
            place = generator.randrange(0, len(changed), 512) + generator.choice([0, 124, 148, 156, 257, 400])
            changed[place] = generator.randrange(256)
        path.write_bytes(changed)
        for item in items(open_stream(path)):
            try:
                image = item.read().image
            except BadItemError:
                continue
            assert image.shape[0] == 3


def test_mistakes(tmp_path):
    options = {"source": "webdataset", "root": str(tmp_path)}
    assert f"{tmp_path / 'train*.tar'} does not exist" in refusal("train", **options)
    write_shard(tmp_path / "train.tar", some(range(2)))
    assert f"write {tmp_path / 'classes.txt'}, one name in each line" in refusal("train", **options)
    (tmp_path / "classes.txt").write_text("a\nb\nc")
    assert f"neither {tmp_path / 'val*.tar'} nor test*.tar" in refusal("val", **options)
