"""Data sets that torchvision opens."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import idx, labels, noise, open_both, picture

from lambdanets.data.images import ImageDataConfig
from lambdanets.data.images.sources import open_split
from lambdanets.data.splits import BadItemError, DataError


@pytest.fixture
def fashion(tmp_path: Path) -> Path:
    raw = tmp_path / "FashionMNIST/raw"
    raw.mkdir(parents=True)
    for prefix, count in (("train", 31), ("t10k", 17)):
        (raw / f"{prefix}-images-idx3-ubyte").write_bytes(idx(noise(count, (count, 28, 28))))
        (raw / f"{prefix}-labels-idx1-ubyte").write_bytes(idx(np.arange(count, dtype=np.uint8) % 10))
    return tmp_path


def test_torchvision_by_train(fashion):
    options = {"source": "torchvision", "name": "FashionMNIST", "root": str(fashion)}
    train, val = open_both(**options)
    assert (len(train), len(val), train.channels, train.classes[9]) == (31, 17, 1, "Ankle boot")
    assert torch.equal(val.item(4).read().image, torch.from_numpy(noise(17, (17, 28, 28)))[4:5])
    assert labels(val) == [i % 10 for i in range(17)]
    assert len(open_both(**options, limit=7)[0]) == 7
    assert pickle.loads(pickle.dumps(val)).item(3).name == "FashionMNIST/val[3]"


def test_torchvision_by_split(tmp_path):
    """Imagenette calls its splits train and val, and keeps its labels with the paths."""
    from torchvision.datasets import Imagenette

    for split in ("train", "val"):
        for word in Imagenette._WNID_TO_CLASS:
            folder = tmp_path / "imagenette2" / split / word
            folder.mkdir(parents=True)
            (folder / "x.JPEG").write_bytes(picture(1, "JPEG"))
    train, val = open_both(source="torchvision", name="Imagenette", root=str(tmp_path))
    assert (len(train), len(val), train.channels) == (10, 10, 3)
    assert "tench" in train.classes[0]
    (tmp_path / "imagenette2/val/n01440764/x.JPEG").write_bytes(b"damaged")
    with pytest.raises(BadItemError, match=r"Imagenette/val\[0\]: "):
        val.item(0).read()


def test_torchvision_mistakes(tmp_path):
    def message(**options: object) -> str:
        with pytest.raises(DataError) as caught:
            open_split(ImageDataConfig(source="torchvision", root=str(tmp_path), **options), "train")
        return str(caught.value)

    assert "data.name=None; choose from" in message()
    assert "did you mean FashionMNIST?" in message(name="FashonMNIST")
    assert "data.name=ImageFolder" in message(name="ImageFolder")
    assert f"cannot open CIFAR10 in {tmp_path}" in message(name="CIFAR10")
    assert "set data.download=true, or put its files there" in message(name="CIFAR10")
    assert "has no split called train" in message(name="EMNIST")
    assert "torchvision cannot open PhotoTour" in message(name="PhotoTour")
