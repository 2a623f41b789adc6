"""What all sources share: their names, what they hold out, the first few."""

from collections import Counter

import pytest
import torch
from pictures import labels, names, open_both, write_folder

from lambdanets.data.images import ImageDataConfig
from lambdanets.data.images.labelled import held_out
from lambdanets.data.images.sources import SOURCES, open_split
from lambdanets.data.splits import DataError


def test_unknown_source_suggests_the_nearest():
    with pytest.raises(DataError, match=r"data\.source=folders; choose from digits, folder.*; did you mean folder\?"):
        open_split(ImageDataConfig(source="folders"), "train")


@pytest.mark.parametrize("source", sorted(SOURCES.keys() - {"digits", "torchvision"}))
def test_sources_say_what_they_need(source):
    with pytest.raises(DataError, match=f"data.source={source} needs data"):
        open_split(ImageDataConfig(source=source), "train")


def test_digits():
    train, val = open_both(source="digits")
    assert (len(train), len(val), train.channels, train.classes) == (1437, 360, 1, tuple("0123456789"))
    assert len(set(labels(val))) == 10
    values = torch.cat([train.item(i).read().image.flatten() for i in range(100)]).unique().tolist()
    assert values == sorted(round(v * 255 / 16) for v in range(17))


def test_who_changes_an_image_changes_no_other():
    train, _ = open_both(source="digits")
    train.item(0).read().image.zero_()
    assert train.item(0).read().image.any()


def test_held_out_share_of_every_class():
    numbers = torch.tensor([0] * 50 + [1] * 7 + [2] * 1 + [4] * 20)
    held = held_out(numbers, 0.1)
    assert torch.equal(held, held_out(numbers, 0.1))
    assert numbers[held].bincount(minlength=5).tolist() == [5, 1, 0, 0, 2]
    assert numbers[held_out(numbers, 1.0)].bincount(minlength=5).tolist() == [49, 6, 0, 0, 19]
    assert not held_out(numbers, 0.0).any()


def test_folder_without_validation_holds_out(tmp_path):
    write_folder(tmp_path, {"a": 20, "b": 10})
    train, val = open_both(source="folder", root=str(tmp_path), holdout=0.2)
    assert Counter(labels(val)) == {0: 4, 1: 2}
    assert not set(names(train)) & set(names(val))
    assert len(set(names(train)) | set(names(val))) == 30
    few, same = open_both(source="folder", root=str(tmp_path), holdout=0.2, limit=9)
    assert names(same) == names(val)
    assert set(names(few)) < set(names(train))
    assert len(few) == 9
    assert len(set(labels(few))) == 2
    everything, _ = open_both(source="folder", root=str(tmp_path), holdout=0.2, limit=10_000)
    assert sorted(names(everything)) == sorted(names(train))


def test_holdout_of_nothing(tmp_path):
    write_folder(tmp_path, {"a": 3, "b": 3})
    with pytest.raises(
        DataError, match=r"data\.holdout=0\.1 of 6 training images in 2 classes leaves no validation images"
    ):
        open_split(ImageDataConfig(source="folder", root=str(tmp_path)), "val")
