"""Layers under one budget: every entry is a network, results are kept, and what is finished is not trained again."""

import csv
import json

import pytest
import torch

from lambdanets import create_model, list_layers
from lambdanets.bench.compare.budget import BUDGETS, QUICK
from lambdanets.bench.compare.entries import CONTESTS, distinct
from lambdanets.bench.compare.picture import draw_comparison
from lambdanets.bench.compare.runs import configuration, folder_of, trained
from lambdanets.bench.compare.summary import rows_of
from lambdanets.cli.compare import CONTESTS as NAMES
from lambdanets.cli.main import main
from lambdanets.paper.tables import published
from lambdanets.runs import train
from lambdanets.runs.description import Description
from lambdanets.train.checkpointing import StoppedError
from lambdanets.train.config import ConfigError
from tiny import Stop

TINY = ("data.limit=64", "trainer.max_epochs=1", "model.width=4")
BATCHES = ("data.batch_size=8",)


def compare(out, *arguments):
    main(["compare", "--quick", "--only", "convolution,lambda", "--out", str(out), *TINY, *arguments])


@pytest.mark.parametrize("contest", CONTESTS)
def test_every_entry_is_a_network(contest):
    for entry in CONTESTS[contest]():
        for budget in (*BUDGETS.values(), QUICK):
            model = configuration(entry, budget, 0, []).model
            with torch.device("meta"):
                create_model(model.name, **model.changes)


def test_every_layer_takes_part():
    names = {part for entry in CONTESTS["layers"]() for part in entry.name.split("+")}
    assert names == {"convolution", "lambda 7x7", *list_layers("maps")}


@pytest.mark.parametrize("contest", ["layers", "terms", "norms", "depths"])
def test_lambda_layers_have_the_windows_of_the_paper_whatever_a_recipe_has(contest):
    for entry in CONTESTS[contest]():
        for budget in BUDGETS.values():
            model = configuration(entry, budget, 0, []).model
            u = model.changes.get("u", 1)
            if model.changes.get("layer", "lambda") != "lambda" or entry.name == "convolution":
                continue
            with torch.device("meta"):
                scope = create_model(model.name, **model.changes).config.lambda_scope
            assert scope == (7 if u > 1 or entry.name == "lambda 7x7" else 23)


@pytest.mark.parametrize("contest", CONTESTS)
def test_no_network_is_compared_with_itself(contest):
    for budget in BUDGETS.values():
        entries = distinct(CONTESTS[contest](), budget.image_size)
        networks = [repr(sorted(configuration(entry, budget, 0, []).model.changes.items())) for entry in entries]
        assert len({*networks}) == len(entries) > 2


def test_what_is_of_lambda_layers_is_theirs():
    by_name = {entry.name: configuration(entry, QUICK, 0, ["model.k=8"]) for entry in CONTESTS["layers"]()}
    assert by_name["lambda"].model.changes["k"] == 8
    assert "k" not in by_name["axial"].model.changes
    with pytest.raises(ConfigError, match="--only"):
        configuration(CONTESTS["layers"]()[0], QUICK, 0, ["model.layer=local"])


def test_goes_on_where_it_was_stopped_wherever_the_data_are_now(tmp_path):
    (entry,) = [entry for entry in CONTESTS["layers"]() if entry.name == "convolution"]
    run = folder_of(tmp_path, entry, 0)
    config = configuration(entry, QUICK, 0, [*TINY, *BATCHES])
    with pytest.raises(StoppedError):
        train(config, run, callbacks=[Stop(after=1)])
    begun = run.description()
    assert begun.finished is None
    done = trained(run, configuration(entry, QUICK, 0, [*TINY, *BATCHES, "data.root=elsewhere"]))
    assert done.started == begun.started
    assert done.finished is not None


def test_a_run_that_went_astray_is_no_end_of_the_others(tmp_path):
    (entry,) = [entry for entry in CONTESTS["layers"]() if entry.name == "convolution"]
    config = configuration(entry, QUICK, 0, [*TINY, *BATCHES, "optim.lr=1e30", "optim.warmup_epochs=0"])
    astray = trained(folder_of(tmp_path, entry, 0), config)
    assert astray.score is None
    costs = {entry.name: {"training_images_per_second": 1.0}}
    (row,) = rows_of([entry], {entry.name: [astray]}, costs, {})
    assert row["accuracy"] is None
    assert row["seeds"] == 0
    draw_comparison([row, {**row, "entry": "other", "accuracy": 0.5}], "", tmp_path / "results.png")


def test_published_rows_exist():
    printed = {(table, row) for table, row, _, _ in published()}
    wanted = {entry.published for contest in CONTESTS.values() for entry in contest()} - {None}
    assert wanted <= printed
    assert len(wanted) > 30


def test_the_command_knows_every_contest():
    assert NAMES.keys() == CONTESTS.keys()


def test_results_are_kept_and_nothing_is_trained_twice(tmp_path, capsys):
    compare(tmp_path)
    shown = capsys.readouterr().out
    assert "convolution" in shown
    assert "Table 3: lambda" in shown
    report = json.loads((tmp_path / "results.json").read_text())
    assert [row["entry"] for row in report["rows"]] == ["convolution", "lambda"]
    epochs, images = report["shared"]["trainer"]["max_epochs"], report["shared"]["data"]["limit"]
    assert f"{epochs} epochs of {images} images of digits" in " ".join(shown.split())
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        assert 0 <= float(row["accuracy"]) <= 1
        assert float(row["training_images_per_second"]) > 0
        assert int(row["flops"]) > 0
    assert (tmp_path / "results.png").read_bytes().startswith(b"\x89PNG")
    weights = tmp_path / "lambda-seed-0" / "model" / "model.safetensors"
    written = weights.stat().st_mtime_ns
    compare(tmp_path)
    assert weights.stat().st_mtime_ns == written
    assert json.loads((tmp_path / "results.json").read_text())["rows"][1]["accuracy"] == report["rows"][1]["accuracy"]
    with pytest.raises(SystemExit) as ended:
        compare(tmp_path, "optim.lr=0.01")
    assert ended.value.code == 2
    assert "has a run with other settings; choose another --out" in capsys.readouterr().err


def test_unknown_entries_and_data_are_refused(tmp_path, capsys):
    for arguments, complaint in (
        (["--only", "konvolution"], "unknown entries konvolution"),
        (["layer"], "unknown comparison layer; choose from layers, terms"),
        (["--quick", "--data", "cifar10"], "--quick runs on digits only"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["compare", "--out", str(tmp_path), *arguments])
        assert ended.value.code == 2
        assert complaint in capsys.readouterr().err


def test_accuracy_is_a_mean_with_its_spread(tmp_path):
    (entry,) = [entry for entry in CONTESTS["layers"]() if entry.name == "lambda"]
    runs = [Description(model="m", data="d", parameters=1, started="", score=accuracy) for accuracy in (0.8, 0.9, 1.0)]
    costs = {"parameters": 1, "flops": 2, "training_peak_bytes": None, "training_images_per_second": 3.0}
    (row,) = rows_of([entry], {"lambda": runs}, {"lambda": costs}, {(3, "lambda", "top1"): 78.4})
    assert (row["accuracy"], row["spread"], row["seeds"]) == (pytest.approx(0.9), pytest.approx(0.1), 3)
    assert (row["published_top1"], row["published_params_M"]) == (78.4, None)
    draw_comparison([row], "one", tmp_path / "one.png")
    assert (tmp_path / "one.png").stat().st_size > 1000
