"""Local files that Hugging Face's library reads as it reads those of the Hub."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from pictures import noise, picture, refusal, write_folder
from streams import bad_items, check_order, check_parts, names
from torch.utils.data import DataLoader, IterableDataset

from lambdanets.data.images import ImageDataConfig
from lambdanets.data.images.sources import open_split
from lambdanets.data.splits import BadItemError, Stream


def write_parquet(path: Path, numbers: list[int], label: object = None, **columns: object) -> None:
    """Images with the labels 0, 1, 2, 0, 1, 2 ..."""
    from datasets import ClassLabel, Dataset, Features, Image

    features = {"image": Image(), "label": label or ClassLabel(names=["a", "b", "c"])} | columns
    images = [{"image": {"bytes": picture(number), "path": f"{number}.png"}} for number in numbers]
    rows = [dict.fromkeys(features, number % 3) | image for number, image in zip(numbers, images, strict=True)]
    path.parent.mkdir(parents=True, exist_ok=True)
    Dataset.from_list(rows, features=Features(features)).to_parquet(path)


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> dict[str, object]:
    """Four shards of five images."""
    root = tmp_path_factory.mktemp("set")
    for shard in range(4):
        write_parquet(root / f"train-{shard:05}.parquet", list(range(5 * shard, 5 * shard + 5)))
    write_parquet(root / "validation-00000.parquet", [100, 101, 102])
    return {"source": "huggingface", "name": "parquet", "root": str(root)}


def open_stream(options: dict[str, object], split: str = "train") -> Stream:
    stream = open_split(ImageDataConfig(**options), split)
    assert isinstance(stream, Stream)
    return stream


def test_images_and_labels(shards):
    stream = open_stream(shards)
    assert (stream.classes, stream.channels, stream.length) == (("a", "b", "c"), 3, None)
    items = list(stream.items(seed=0, epoch=0, part=0, parts=1))
    assert len(items) == 20
    for item in items:
        number = int(item.name.rpartition("/")[2].removesuffix(".png"))
        image, label = item.read()
        assert label == number % 3
        assert torch.equal(image, torch.from_numpy(noise(number)).permute(2, 0, 1))
    assert open_stream(shards | {"samples": 17}).length == 17


def test_validation_keeps_its_order(shards):
    stream = open_stream(shards | {"samples": 17}, "val")
    assert stream.length is None
    assert names(stream) == names(stream, seed=1, epoch=2) == ["100.png", "101.png", "102.png"]


def test_order_depends_on_seed_and_epoch_alone(shards):
    check_order(partial(open_stream, shards))


@pytest.mark.parametrize("parts", [2, 3, 4, 7])
def test_parts_are_disjoint_and_complete(shards, parts):
    check_parts(partial(open_stream, shards), parts)


class Parts(IterableDataset):
    """One worker of two."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def __iter__(self) -> Iterator[str]:
        yield from names(self.stream, part=torch.utils.data.get_worker_info().id, parts=2)


def test_workers_get_all_of_their_parts(shards):
    """Hugging Face's own iterator would give each worker a part of its part."""
    found = list(DataLoader(Parts(open_stream(shards)), batch_size=None, num_workers=2))
    assert sorted(found) == sorted(names(open_stream(shards)))


def test_folder_of_files(tmp_path):
    write_folder(tmp_path, {"train/a": 3, "train/b": 2, "test/b": 1})
    options = {"source": "huggingface", "name": "imagefolder", "root": str(tmp_path)}
    found = {e.name: e for e in open_stream(options).items(seed=0, epoch=0, part=0, parts=1)}
    assert found.keys() == {str(path) for path in (tmp_path / "train").rglob("*.png")}
    item = found[str(tmp_path / "train/b/001.png")]
    assert item.read().label == 1
    assert torch.equal(item.read().image, torch.from_numpy(noise(1001)).permute(2, 0, 1))
    (tmp_path / "train/b/001.png").unlink()
    with pytest.raises(BadItemError, match="No such file"):
        item.read()
    assert names(open_stream(options, "val")) == ["000.png"]
    assert names(open_stream(options | {"name": None}, "val")) == ["000.png"]


def test_numbers_need_names(tmp_path):
    from datasets import Value

    write_parquet(tmp_path / "train-0.parquet", [0, 1, 2, 3], Value("int64"))
    options = {"source": "huggingface", "name": "parquet", "root": str(tmp_path)}
    assert "does not define the classes" in refusal("train", **options)
    (tmp_path / "classes.txt").write_text("x\ny")
    stream = open_stream(options)
    assert stream.classes == ("x", "y")
    bad = bad_items(stream)
    with pytest.raises(BadItemError, match=r"2\.png: its label is 2, but there are 2 classes"):
        bad[0].read()
    assert len(bad) == 1


def test_columns_that_cannot_be_told_apart(tmp_path):
    from datasets import ClassLabel, Value

    options = {"source": "huggingface", "name": "parquet", "root": str(tmp_path)}
    write_parquet(tmp_path / "train-0.parquet", [0], other=ClassLabel(names=["x"]))
    assert open_stream(options).label == "label"
    write_parquet(tmp_path / "train-0.parquet", [0], Value("string"))
    assert "for the label: there are no candidates; columns are image: Image, label: Value" in refusal(
        "train", **options
    )
    write_parquet(tmp_path / "train-0.parquet", [0], Value("string"), coarse=Value("int8"), fine=Value("int8"))
    assert "for the label: candidates are coarse, fine" in refusal("train", **options)


def test_mistakes(shards, tmp_path):
    assert "does not have any of the splits validation, val, test; its splits are train" in refusal(
        "val", source="huggingface", name="parquet", root=f"{shards['root']}/train-00000.parquet"
    )
    assert f"cannot open {tmp_path / 'absent'}" in refusal("train", source="huggingface", root=str(tmp_path / "absent"))
    assert "data.limit=3 does not work with a stream" in refusal("train", **shards, limit=3)
    (tmp_path / "train-0.parquet").write_bytes(b"PAR1 damaged")
    assert "cannot open parquet: " in refusal("train", source="huggingface", name="parquet", root=str(tmp_path))
