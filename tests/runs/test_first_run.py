"""The first run of a new user: few pictures, a batch that is too large for them, five epochs."""

import csv
import io

import pytest
from rich.console import Console

from lambdanets.cli.main import main
from lambdanets.runs import RunFolder, train
from test_examples import example
from tiny import tiny

PICTURES = ("data.source=folder", "data.image_size=32", "trainer.max_epochs=5", "trainer.accelerator=cpu")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    example("draw_pictures").main(folder)
    return folder


def test_sixty_pictures_are_learnt_in_five_epochs(pictures, tmp_path, capsys):
    main(["train", "digits", *PICTURES, f"data.root={pictures}", "--runs", str(tmp_path), "--name", "first"])
    said = capsys.readouterr()
    notice = "data.batch_size=64 is more than the 60 training images: using 8"
    assert notice in said.err
    with (tmp_path / "first" / "metrics.csv").open() as file:
        *_, last = csv.DictReader(file)
    assert float(last["val_accuracy"]) >= 0.8
    assert f"accuracy {float(last['val_accuracy']):.2%} of 60 images" in said.out
    assert RunFolder(tmp_path / "first").config().data.batch_size == 8


def test_the_same_pictures_are_drawn_every_time(pictures, tmp_path):
    example("draw_pictures").main(tmp_path)
    files = [path for path in sorted(pictures.rglob("*")) if path.is_file()]
    assert len(files) == 120
    assert all(path.read_bytes() == (tmp_path / path.relative_to(pictures)).read_bytes() for path in files)
    assert len({path.read_bytes() for path in files}) == 120


def test_a_batch_that_fits_is_left_alone(tmp_path):
    said = io.StringIO()
    train(tiny("trainer.max_epochs=1"), RunFolder(tmp_path), console=Console(file=said))
    assert "is more than" not in said.getvalue()
    assert RunFolder(tmp_path).config().data.batch_size == 32
