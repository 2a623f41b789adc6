"""Folders of images."""

import os
import pickle
import shutil

import pytest
import torch
from pictures import labels, names, noise, open_both, picture, write_folder

from lambdanets.data.images import ImageDataConfig
from lambdanets.data.images.sources import open_split
from lambdanets.data.splits import BadItemError, DataError


@pytest.mark.parametrize("called", ["val", "validation", "test"])
def test_imagenet_layout(tmp_path, called):
    write_folder(tmp_path, {"train/b": 3, "train/a/deep/deeper": 2, "train/c": 1, f"{called}/b": 2})
    os.rename(tmp_path / "train/b/001.png", tmp_path / "train/b/001.JPeG")
    (tmp_path / "train/b/notes.txt").write_text("not an image")
    (tmp_path / "train/.hidden").mkdir()
    (tmp_path / "train/readme.png").touch()
    train, val = open_both(source="folder", root=str(tmp_path))
    assert (train.classes, train.channels) == (("a", "b", "c"), 3)
    assert labels(train) == [0, 0, 1, 1, 1, 2]
    assert labels(val) == [1, 1]
    root = tmp_path / "train"
    files = ["a/deep/deeper/000.png", "a/deep/deeper/001.png", "b/000.png", "b/001.JPeG", "b/002.png", "c/000.png"]
    assert names(train) == [str(root / file) for file in files]
    for i in (0, 3):
        item = pickle.loads(pickle.dumps(train)).item(i)
        assert item.read().image.shape == (3, 11, 13)
    assert torch.equal(train.item(4).read().image, torch.from_numpy(noise(2)).permute(2, 0, 1))


def test_folder_images_that_go_away_or_break(tmp_path):
    write_folder(tmp_path, {"train/a": 2, "val/a": 1})
    train, _ = open_both(source="folder", root=str(tmp_path))
    (tmp_path / "train/a/000.png").unlink()
    (tmp_path / "train/a/001.png").write_bytes(picture()[:50])
    for i in range(2):
        with pytest.raises(BadItemError, match=f"a/00{i}.png: "):
            train.item(i).read()


def test_folder_names_that_are_no_text(tmp_path):
    write_folder(tmp_path, {"train/a": 1, "val/a": 1})
    os.rename(tmp_path / "train/a/000.png", os.fsencode(tmp_path / "train/a/") + b"/\xff.png")
    train, _ = open_both(source="folder", root=str(tmp_path))
    assert train.item(0).name.endswith("\\xff.png")
    assert train.item(0).read().image.shape == (3, 11, 13)


def test_folder_mistakes(tmp_path):
    def message(split: str = "train") -> str:
        with pytest.raises(DataError) as caught:
            open_split(ImageDataConfig(source="folder", root=str(tmp_path / "set")), split)
        return str(caught.value)

    assert "set cannot be read: No such file" in message()
    (tmp_path / "set").mkdir()
    assert "must have a folder for each class" in message()
    write_folder(tmp_path / "set", {"val/a": 1, "val/z": 1})
    assert "but the folder" in message()
    write_folder(tmp_path / "set", {"train/a": 1, "train/b": 0})
    assert "train/b has no images (bmp, gif, jpeg" in message()
    assert "val has classes that training does not have: z" in message("val")
    shutil.rmtree(tmp_path / "set/val")
    (tmp_path / "set/val").mkdir()
    assert "val has no images" in message("val")


def test_folder_is_small_in_every_worker(tmp_path):
    write_folder(tmp_path, {"train/a": 0, "val/a": 1})
    for i in range(3000):
        (tmp_path / f"train/a/{i:06}.jpg").touch()
    train, _ = open_both(source="folder", root=str(tmp_path))
    assert len(pickle.dumps(train)) < 3000 * (10 + 8 + 8) + 5000
