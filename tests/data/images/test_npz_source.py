"""Keras' files, whole and damaged."""

import io
import pickle
import random
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import labels, noise, open_both, refusal, refusal_or_nothing

from lambdanets.data.images import ImageDataConfig
from lambdanets.data.images.sources import open_split
from lambdanets.data.splits import DataError


def write_npz(path: Path, **arrays: np.ndarray) -> dict[str, object]:
    np.savez_compressed(path, **arrays)
    return {"source": "npz", "root": str(path)}


def test_npz(tmp_path):
    x, y = noise(0, (31, 5, 7, 3)), np.arange(31) % 4
    test = {"x_test": x[:9], "y_test": y[:9].astype(np.uint8)}
    train, val = open_both(**write_npz(tmp_path / "set.npz", x_train=x, y_train=y[:, None], **test))
    assert (len(train), len(val), train.channels, train.classes) == (31, 9, 3, ("0", "1", "2", "3"))
    assert torch.equal(train.item(5).read().image, torch.from_numpy(x[5]).permute(2, 0, 1))
    assert train.item(5).read().image.is_contiguous()
    names = write_npz(tmp_path / "named.npz", x_train=x, y_train=y, classes=np.array(["a", "b", "c", "d"]))
    train, val = open_both(**names, holdout=0.25)
    assert train.classes == ("a", "b", "c", "d")
    assert len(train) + len(val) == 31
    assert Counter(labels(val)) == {0: 2, 1: 2, 2: 2, 3: 2}


def test_npz_kinds_of_images(tmp_path):
    y, grey = np.array([0, 1, 1]), noise(1, (3, 5, 7))
    deep = noise(2, (3, 5, 7), np.uint16)
    shares = np.linspace(0, 1, 105, dtype=np.float32).reshape(3, 5, 7)
    for x, expected in [
        (grey, grey),
        (grey[..., None], grey),
        (grey[:, None], grey),
        (deep, np.rint(deep / 257)),
        (shares, np.rint(shares * 255)),
    ]:
        _, val = open_both(**write_npz(tmp_path / "a.npz", x_train=x, y_train=y, x_test=x, y_test=y))
        found = torch.stack([val.item(i).read().image for i in range(3)])
        assert torch.equal(found, torch.from_numpy(expected.astype(np.uint8))[:, None])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x_train": np.full((3, 5, 7), 1.5)}, "x_train must be from 0 to 1 .* is from 1.5 to 1.5"),
        ({"x_train": np.full((3, 5, 7), np.nan)}, "x_train must be from 0 to 1"),
        ({"x_train": np.zeros((3, 5, 7), np.int64)}, "x_train must be uint8, uint16 or floating-point, got int64"),
        ({"x_train": np.zeros((3, 5, 7, 4), np.uint8)}, r"x_train must be n x height x width.*\(3, 5, 7, 4\)"),
        ({"x_train": np.zeros((2, 5, 7), np.uint8)}, "x_train has 2 images and 3 labels"),
        ({"x_train": np.zeros((0, 5, 7), np.uint8)}, "x_train is empty"),
        ({"x_train": np.array([object()] * 3)}, "x_train cannot be read: Object arrays cannot be loaded"),
        ({"y_train": np.eye(3, dtype=int)}, r"y_train must be one integer for each image, got int64 of shape \(3, 3\)"),
        ({"y_train": np.array([0.0, 1, 1])}, "y_train must be one integer"),
        ({"y_train": np.array([0, -1, 1])}, "y_train has labels from -1 to 1"),
        ({"y_train": np.array([0, 10**9, 1])}, "y_train has a label 1000000000, but only 3 images"),
        ({"classes": np.array([1, 2])}, "classes must be one row of strings"),
        ({"classes": np.array(["a"])}, "labels from 0 to 1, but there are 1 classes"),
    ],
)
def test_npz_that_cannot_be_used(tmp_path, changed, message):
    arrays = {"x_train": np.zeros((3, 5, 7), np.uint8), "y_train": np.array([0, 1, 1])} | changed
    with pytest.raises(DataError, match=message) as caught:
        open_split(ImageDataConfig(**write_npz(tmp_path / "set.npz", **arrays), holdout=0.5), "train")
    assert "set.npz" in str(caught.value)


def test_npz_without_arrays(tmp_path):
    arrays = {"x_train": np.zeros((3, 5, 7), np.uint8), "y_train": np.zeros(3, int)}
    for key in arrays:
        others = {name: array for name, array in arrays.items() if name != key}
        assert f"set.npz: {key}" in refusal("train", **write_npz(tmp_path / "set.npz", **others))
    for content in (b"", b"PK\x03\x04", pickle.dumps({"x_train": 1})):
        (tmp_path / "set.npz").write_bytes(content)
        with pytest.raises(DataError, match=r"set\.npz cannot be read"):
            open_split(ImageDataConfig(source="npz", root=str(tmp_path / "set.npz")), "train")
    with pytest.raises(DataError, match=r"absent\.npz"):
        open_split(ImageDataConfig(source="npz", root=str(tmp_path / "absent.npz")), "train")


def test_npz_whose_header_claims_terabytes(tmp_path):
    options = write_npz(tmp_path / "set.npz", y_train=np.array([0, 1, 1]))
    content = io.BytesIO()
    header = {"descr": "|u1", "fortran_order": False, "shape": (300_000, 50_000, 700)}
    np.lib.format.write_array_header_1_0(content, header)
    with zipfile.ZipFile(tmp_path / "set.npz", "a") as archive:
        archive.writestr("x_train.npy", content.getvalue() + bytes(105))
    assert "set.npz: x_train cannot be read" in refusal("train", **options)


def test_mutated_npz(tmp_path):
    path = tmp_path / "set.npz"
    options = write_npz(path, x_train=noise(0, (9, 5, 7)), y_train=np.arange(9) % 2)
    whole, generator = path.read_bytes(), random.Random(0)
    contents = [whole[: len(whole) * tenth // 10] for tenth in range(10)]
    for _ in range(200):
        changed = bytearray(whole)
        for _ in range(generator.choice([1, 3])):
            changed[generator.randrange(len(changed))] = generator.randrange(256)
        contents.append(bytes(changed))
    for content in contents:
        path.write_bytes(content)
        message = refusal_or_nothing("train", **options, holdout=0.5)
        assert not message or "set.npz" in message
