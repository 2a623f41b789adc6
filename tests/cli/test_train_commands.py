"""lambdanets train, eval, predict, runs, as they are typed."""

import json
import shutil
import subprocess
import sys

import pytest
import torch
import yaml
from PIL import Image

from lambdanets import create_model
from lambdanets.cli.main import main
from lambdanets.data.images import ImageDataConfig, open_images
from lambdanets.models import ResNet
from tiny import TINY


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    main(["train", "digits", "--runs", str(folder), "--name", "one", *TINY])
    return folder


@pytest.fixture
def digit(tmp_path):
    path = tmp_path / "digit.png"
    Image.fromarray(open_images(ImageDataConfig()).val.item(0).read().image[0].numpy()).save(path)
    return path


def test_a_run_leaves_everything(runs):
    names = {path.name for path in (runs / "one").iterdir()}
    pictures = {"curves.png", "confusion.png", "mistakes.png"}
    others = {"config.yaml", "run.json", "metrics.csv", "checkpoints", "model", "tensorboard", ".lock"}
    assert names == pictures | others
    for name in pictures:
        with Image.open(runs / "one" / name) as picture:
            assert min(picture.size) > 100
    rows = (runs / "one" / "metrics.csv").read_text().splitlines()
    assert len(rows) == 3
    assert list((runs / "one" / "tensorboard").glob("events.*"))
    assert ResNet.from_pretrained(runs / "one" / "model")(torch.zeros(1, 1, 8, 8)).shape == (1, 10)


def test_its_configuration_repeats_it(runs, capsys):
    main(["train", str(runs / "one" / "config.yaml"), "--runs", str(runs), "--name", "again"])
    assert "accuracy" in capsys.readouterr().out
    one, again = (ResNet.from_pretrained(runs / name / "model").state_dict() for name in ("one", "again"))
    assert all(torch.equal(one[name], again[name]) for name in one)
    configs = [(runs / name / "config.yaml").read_text() for name in ("one", "again")]
    assert configs[0] == configs[1]


def test_evaluation_says_what_training_said(runs, capsys, tmp_path):
    main(["eval", "one", "--runs", str(runs), "--json", str(tmp_path / "e.json")])
    figures = json.loads((tmp_path / "e.json").read_text())
    assert figures["accuracy"] == json.loads((runs / "one" / "run.json").read_text())["score"]
    assert figures["images"] == 360
    assert "of 360 images" in capsys.readouterr().out


def test_predictions_are_probabilities_of_classes(runs, digit, capsys):
    main(["predict", str(runs / "one"), str(digit), "--json"])
    (line,) = capsys.readouterr().out.splitlines()
    answer = json.loads(line)
    assert answer["image"] == str(digit)
    shares = [share for _, share in answer["top"]]
    assert len(shares) == 5
    assert shares == sorted(shares, reverse=True)
    assert 0 < sum(shares) <= 1
    main(["predict", "one", str(digit.parent), "--runs", str(runs), "--top", "2"])
    assert capsys.readouterr().out.count("%") == 2


def test_images_that_cannot_be_read_are_named_and_the_others_predicted(runs, digit, capsys):
    bad = digit.with_name("bad.png")
    bad.write_bytes(digit.read_bytes()[:30])
    with pytest.raises(SystemExit) as end:
        main(["predict", "one", str(digit.parent / "*.png"), "--runs", str(runs)])
    out = capsys.readouterr()
    assert end.value.code == 1
    assert str(digit) in out.out
    assert str(bad) in out.err
    assert "unreadable inputs: 1" in out.err


def test_the_table_of_runs(runs, capsys):
    main(["runs", "--runs", str(runs)])
    out = capsys.readouterr().out
    assert "lambda_resnet14_small" in out
    assert "finished" in out
    main(["runs", "--runs", str(runs), "--json"])
    assert json.loads(capsys.readouterr().out.splitlines()[0])["run"] == str(runs / "one")


def test_a_dry_run_prints_the_configuration(capsys):
    main(["train", "cifar10", "--dry-run", "optim.lr=0.3", "--devices", "2"])
    tree = yaml.safe_load(capsys.readouterr().out)
    assert (tree["optim"]["lr"], tree["trainer"]["devices"]) == (0.3, 2)


def test_a_dry_run_shows_the_row_and_not_what_the_data_decides(capsys):
    main(["train", "imagenet-350", "--dry-run", "model.name=lambda_resnet152", "model.in_chans=1"])
    tree = yaml.safe_load(capsys.readouterr().out)
    row = create_model("lambda_resnet152").config
    assert tree["model"]["setup"] == "350"
    assert tree["model"]["in_chans"] == 1
    assert "num_classes" not in tree["model"]
    assert tree["data"]["image_size"] == row.image_size


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["train", "digits", "optim.lrr=1"], 2, "unknown key optim.lrr; did you mean optim.lr?"),
        (["train", "mnist"], 2, "unknown recipe mnist"),
        (["train", "digits", "--dry-run", "data.source=floder"], 1, "did you mean folder?"),
        (["train", "digits", "--dry-run", "model.h=5"], 2, "divisible by h"),
        *(
            (["train", "digits", "--name", name], 2, "--name must be the name of a folder")
            for name in ("a/b", "../x", "latest", "")
        ),
        (["train", "--resume", "nothing"], 2, "there is no run nothing"),
        (["train", "fashion-mnist"], 1, "data.source=idx needs data.root"),
        (["train", "cifar10", "data.root=absent.npz"], 1, "absent.npz"),
        (["train", "digits", "--frobnicate"], 2, "unrecognized arguments: --frobnicate"),
        (["info", "optim.lr=1"], 2, "unrecognized arguments: optim.lr=1"),
        (["eval", "latest"], 2, "there are no runs"),
        (["predict", "nothing", "x.png"], 2, "there is no run nothing"),
    ],
)
def test_mistakes_are_one_line(arguments, code, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(arguments)
    err = capsys.readouterr().err
    assert end.value.code == code
    assert message in err
    assert len(err.strip().splitlines()) == 1


def test_a_name_is_taken_once(runs, capsys):
    with pytest.raises(SystemExit) as end:
        main(["train", "digits", "--runs", str(runs), "--name", "one", *TINY])
    assert end.value.code == 2
    assert "already has a run" in capsys.readouterr().err


def refused(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    return int(end.value.code)


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("model.width=8", "model.width cannot change when"),
        ("optim.lr=9", "optim.lr cannot change when"),
        ("seed=5", "seed cannot change when"),
        ("trainer.accumulate_grad_batches=2", "trainer.accumulate_grad_batches cannot change when"),
        ("cifar10", "--resume uses the recipe of the run; remove cifar10"),
    ],
)
def test_a_run_that_goes_on_stays_what_it_is(runs, change, complaint, capsys):
    before = contents(runs / "one")
    assert refused("train", change, "--resume", "one", "--runs", str(runs)) == 2
    assert complaint in capsys.readouterr().err
    assert contents(runs / "one") == before


def test_one_process_at_a_time_trains_in_a_folder(runs, capsys):
    program = (
        "import sys; from pathlib import Path; from lambdanets.runs.folder import RunFolder, claimed\n"
        "with claimed(RunFolder(Path(sys.argv[1])), ()): print('mine', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(runs / "one")]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "mine\n"
        before = contents(runs / "one")
        assert refused("train", "--resume", "one", "--runs", str(runs)) == 2
        assert "is being trained by another process" in capsys.readouterr().err
        assert contents(runs / "one") == before
    finally:
        other.kill()
        other.wait()
    main(["train", "--resume", "one", "--runs", str(runs)])  # a process that was killed keeps nothing


def test_only_data_can_be_changed_for_an_evaluation(runs, capsys):
    assert refused("eval", "one", "--runs", str(runs), "model.width=99", "optim.lr=7") == 2
    assert "only data. can be changed for an evaluation, got model.width=99, optim.lr=7" in capsys.readouterr().err


def test_a_size_that_the_network_does_not_take(tmp_path, capsys):
    network = ("model.name=vit_micro_small", "model.d=12", "model.depth=1", "model.patch=2")
    rest = ("data.limit=64", "trainer.max_epochs=1", "data.workers=0")
    main(["train", "digits", "--runs", str(tmp_path), "--name", "vit", *network, *rest])
    capsys.readouterr()
    assert refused("eval", "vit", "--runs", str(tmp_path), "data.image_size=16") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "there are positions for a grid of (4, 4) patches, got (8, 8)" in line


def test_names_with_brackets_and_patterns_that_fit_folders(runs, digit, capsys):
    odd = digit.with_name("[bold]x") / "["
    odd.mkdir(parents=True)
    shutil.copy(digit, odd / "y].png")  # [/y] would close what nobody opened
    main(["predict", "one", str(odd), f"{digit.parent}/*", "--runs", str(runs)])
    shown = capsys.readouterr().out
    assert str(odd / "y].png") in shown
    assert str(digit) in shown


def test_a_run_without_steps_is_refused(tmp_path, capsys):
    assert refused("train", "digits", "--runs", str(tmp_path), *TINY, "trainer.limit_train_batches=0") == 2
    assert (
        "the run has no training steps: 4 batches in an epoch, trainer.limit_train_batches=0" in capsys.readouterr().err
    )


def test_what_an_unfinished_run_has_done_is_shown(runs, tmp_path, capsys):
    shutil.copytree(runs / "one", tmp_path / "half")
    description = json.loads((tmp_path / "half" / "run.json").read_text())
    stopped = {**description, "finished": None, "score": None, "epochs": 0, "seconds": 0.0}
    (tmp_path / "half" / "run.json").write_text(json.dumps(stopped))
    main(["runs", "--runs", str(tmp_path), "--json"])
    figures = json.loads(capsys.readouterr().out)
    assert (figures["state"], figures["epochs"]) == ("unfinished", 2)
    assert figures["accuracy"] == pytest.approx(description["score"], abs=1e-6)
