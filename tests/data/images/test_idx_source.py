"""MNIST's files, whole and damaged."""

import gzip
import random
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import idx, labels, noise, open_both, refusal_or_nothing

from lambdanets.data.images import ImageDataConfig
from lambdanets.data.images.sources import open_split
from lambdanets.data.splits import DataError


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    for prefix, count in (("train", 31), ("t10k", 17)):
        (tmp_path / f"{prefix}-images-idx3-ubyte").write_bytes(idx(noise(count, (count, 5, 7))))
        content = idx(np.arange(count, dtype=np.uint8) % 3)
        (tmp_path / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(content))
    return tmp_path


def test_idx(mnist):
    train, val = open_both(source="idx", root=str(mnist))
    assert (len(train), len(val), train.channels, train.classes) == (31, 17, 1, ("0", "1", "2"))
    assert torch.equal(val.item(3).read().image, torch.from_numpy(noise(17, (17, 5, 7)))[3:4])
    assert labels(val)[:4] == [0, 1, 2, 0]
    (mnist / "classes.txt").write_text("shirt\nshoe\nbag\n")
    assert open_both(source="idx", root=str(mnist))[0].classes == ("shirt", "shoe", "bag")


@pytest.mark.parametrize("names", ["shirt\nshirt\nbag", "", "shirt\n\nbag", "\udcff"])
def test_class_names_that_cannot_be(mnist, names):
    (mnist / "classes.txt").write_bytes(names.encode(errors="surrogateescape"))
    with pytest.raises(DataError, match=r"classes\.txt"):
        open_split(ImageDataConfig(source="idx", root=str(mnist)), "train")


def test_idx_with_more_labels_than_classes(mnist):
    (mnist / "classes.txt").write_text("shirt\nshoe")
    with pytest.raises(DataError, match="labels from 0 to 2, but there are 2 classes"):
        open_split(ImageDataConfig(source="idx", root=str(mnist)), "train")


def test_idx_says_where_to_get_it(tmp_path):
    with pytest.raises(DataError, match=r"dataset-fashion-mnist.*data\.name=FashionMNIST data\.download=true"):
        open_split(ImageDataConfig(source="idx", root=str(tmp_path)), "val")


def test_damaged_idx(mnist):
    images = mnist / "train-images-idx3-ubyte"
    whole = images.read_bytes()
    terabytes = whole[:4] + struct.pack(">3I", *[2**32 - 1] * 3) + whole[16:]
    wrong_kind = bytes([0, 0, 9, 3]) + whole[4:]
    none = whole[:4] + struct.pack(">3I", 0, 5, 7)
    fewer = idx(noise(0, (30, 5, 7)))
    for content in (b"", whole[:3], whole[:10], whole[:-1], whole + b"x", terabytes, wrong_kind, none, fewer):
        images.write_bytes(content)
        with pytest.raises(DataError, match="train-images-idx3-ubyte"):
            open_split(ImageDataConfig(source="idx", root=str(mnist)), "train")
    images.unlink()
    packed, generator = gzip.compress(whole), random.Random(0)
    ends = [packed[: len(packed) * tenth // 10] for tenth in range(10)]
    claimed = gzip.compress(terabytes)
    for content in (*ends, claimed, b"not gzip"):
        (mnist / "train-images-idx3-ubyte.gz").write_bytes(content)
        with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz"):
            open_split(ImageDataConfig(source="idx", root=str(mnist)), "train")
    for _ in range(50):
        changed = bytearray(packed)
        changed[generator.randrange(len(changed))] ^= 1 << generator.randrange(8)
        (mnist / "train-images-idx3-ubyte.gz").write_bytes(changed)
        message = refusal_or_nothing("train", source="idx", root=str(mnist))
        assert not message or "train-images" in message
