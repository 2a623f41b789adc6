"""Unreadable images: few are skipped and listed, many end the run."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from damage import write_images

from lambdanets.data import DataError, Item, Split, Splits
from lambdanets.data.images import ImageDataConfig, open_images
from lambdanets.runs import RunFolder, train
from lambdanets.runs.parsing import from_tree
from lambdanets.tasks.classification import Classification
from lambdanets.train.checkpointing import StoppedError
from lambdanets.train.skips import Skips
from tiny import Stop, tiny


def run_on(root: Path, out: Path, *more: str, **how):
    settings = (f"data.root={root}", "data.source=folder", "data.limit=None", "data.image_size=8", "data.workers=2")
    return train(tiny(*settings, "trainer.max_epochs=1", "data.batch_size=50", *more), RunFolder(out), **how)


def test_few_bad_images_are_left_out_and_each_is_named(tmp_path):
    bad = write_images(tmp_path / "data" / "train", 500, bad=5)
    bad |= write_images(tmp_path / "data" / "val", 200, bad=2)
    result = run_on(tmp_path / "data", tmp_path / "run")
    assert result is not None
    assert result.report.images == 198
    assert result.report.skipped == 2
    with (tmp_path / "run" / "skipped.csv").open() as file:
        rows = list(csv.reader(file))
    assert {row[0] for row in rows} == bad
    assert all("truncated" in row[1] for row in rows)


def test_more_than_one_in_a_hundred_end_the_run(tmp_path):
    write_images(tmp_path / "data" / "train", 500, bad=6)
    write_images(tmp_path / "data" / "val", 50, bad=0)
    with pytest.raises(DataError, match=r"6 of 550 images are unreadable, more than 1%; see .*skipped\.csv"):
        run_on(tmp_path / "data", tmp_path / "run")


def test_a_small_data_set_may_have_three(tmp_path):
    bad = write_images(tmp_path / "data" / "train", 40, bad=2)
    bad |= write_images(tmp_path / "data" / "val", 20, bad=1)
    assert run_on(tmp_path / "data", tmp_path / "run", "data.batch_size=20") is not None
    assert {line.partition(",")[0] for line in (tmp_path / "run" / "skipped.csv").read_text().splitlines()} == bad


def test_more_than_three_end_the_run_of_a_small_data_set(tmp_path):
    write_images(tmp_path / "data" / "train", 40, bad=4)
    write_images(tmp_path / "data" / "val", 20, bad=0)
    with pytest.raises(DataError, match="4 of 60 images are unreadable, more than the 3 tolerated in a small data set"):
        run_on(tmp_path / "data", tmp_path / "run", "data.batch_size=20")


class Nothing(Split):
    def __len__(self) -> int:
        return 0

    def item(self, index: int) -> Item:
        raise IndexError


@pytest.mark.parametrize(("spare", "tolerated"), [(0, 0), (1, 1), (3, 3), (499, 3)])
def test_every_class_keeps_an_image(tmp_path, spare, tolerated):
    splits = Splits(Nothing(), Nothing(), spare=spare)
    assert Skips(tmp_path / "skipped.csv", splits, "images").few == tolerated


def test_the_smallest_class_is_that_of_training(tmp_path):
    for split, sizes in {"train": {"a": 5, "b": 3}, "val": {"a": 1, "b": 1}}.items():
        for name, size in sizes.items():
            (tmp_path / split / name).mkdir(parents=True)
            for number in range(size):
                (tmp_path / split / name / f"{number}.png").touch()
    config = ImageDataConfig(source="folder", root=str(tmp_path))
    assert open_images(config).smallest_class == 3
    assert Classification.open(from_tree({"data": {"source": "folder", "root": str(tmp_path)}})).spare == 2
    assert open_images(replace(config, limit=1)).smallest_class == 1


def test_one_in_a_hundred_is_of_the_whole_epoch_when_it_is_interrupted(tmp_path):
    write_images(tmp_path / "data" / "train", 500, bad=6)
    write_images(tmp_path / "data" / "val", 50, bad=0)
    with pytest.raises(StoppedError):
        run_on(tmp_path / "data", tmp_path / "run", callbacks=[Stop(after=4)])
    before = len((tmp_path / "run" / "skipped.csv").read_text().splitlines())
    assert 0 < before < 6
    with pytest.raises(DataError, match="6 of 550 images"):
        run_on(tmp_path / "data", tmp_path / "run", resume=True)


def test_one_in_a_hundred_is_of_all_images_and_not_of_a_small_part_of_them(tmp_path):
    bad = write_images(tmp_path / "data" / "train", 200, bad=1)
    bad |= write_images(tmp_path / "data" / "val", 30, bad=1)
    result = run_on(tmp_path / "data", tmp_path / "run")
    assert result is not None
    assert {line.partition(",")[0] for line in (tmp_path / "run" / "skipped.csv").read_text().splitlines()} == bad


def test_a_batch_of_nothing_ends_the_run(tmp_path):
    write_images(tmp_path / "data" / "train", 100, bad=1)
    write_images(tmp_path / "data" / "val", 50, bad=0)
    with pytest.raises(DataError, match="all images of a batch are unreadable"):
        run_on(tmp_path / "data", tmp_path / "run", "data.batch_size=1", "data.image_size=16", "data.workers=0")
