"""The benchmarks run, small, and their files say what they measured."""

import json
from copy import deepcopy

import pytest
import torch

from lambdanets.bench import limit, plans
from lambdanets.bench.gate import agree
from lambdanets.bench.job import CannotBenchmarkError
from lambdanets.bench.layers import peak
from lambdanets.bench.memory import RESET_PEAK
from lambdanets.bench.networks import fold_batch_norms, networks, settle
from lambdanets.bench.peers import CONTESTANTS, Shape, absent, build, field
from lambdanets.cli.main import main
from lambdanets.interop import adopt
from lambdanets.kernels import unavailable
from lambdanets.nn import LambdaLayer2d
from lambdanets.ops.geometry import Grid, relative_index
from lambdanets.timing import TURN, best_times

needs_kernels = pytest.mark.skipif(unavailable() is not None, reason="there are no kernels")


def measure(tmp_path, *arguments: str) -> dict:
    file = tmp_path / "report.json"
    main(["bench", *arguments, "--quick", "--rounds", "1", "--json", str(file)])
    assert [path.name for path in tmp_path.iterdir()] == [file.name], "no temporary file is left"
    report = json.loads(file.read_text())
    assert report.keys() == {"machine", "command", "settings", "rows"}
    assert report["command"].startswith(f"lambdanets bench {arguments[0]} --rounds 1")
    assert report["machine"]["threads"] == torch.get_num_threads()
    assert report["machine"]["gemm_gflops"] > 0
    return report


def test_ratios_of_layers_are_those_of_their_times(tmp_path, capsys):
    report = measure(tmp_path, "layers", "--format", "channels-last", "--threads", "1")
    assert {row["pass"] for row in report["rows"]} == {"forward", "training"}
    assert report["settings"]["format"] == "channels-last"
    for row in report["rows"]:
        ms = row["ms"]
        assert row["error"] < 1e-5
        assert all(t > 0 for t in ms.values())
        peers = {name: ms[name] for name in ("lucidrains", "timm") if name in ms}
        if peers:
            assert row["best_peer_over_ours"] == pytest.approx(min(peers.values()) / ms["lambdanets"])
            assert peers[row["best_peer"]] == min(peers.values())
        if row["u"] == 1:
            assert row["ours_over_conv"] == pytest.approx(ms["lambdanets"] / ms["conv3x3"])
        else:
            assert ms.keys() <= {"lambdanets", "lucidrains"}
    shown = capsys.readouterr().out
    assert "of the reference" in shown
    assert all(name in shown for name in CONTESTANTS)

    picture = tmp_path / "ratios.png"
    main(["bench", "picture", str(tmp_path / "report.json"), str(picture)])
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert len(list(tmp_path.iterdir())) == 2


def test_layers_on_growing_maps(tmp_path, capsys):
    report = measure(tmp_path, "sizes")
    assert [row["side"] for row in report["rows"]] == [4, 8]
    assert all(ms > 0 for row in report["rows"] for ms in row["ms"].values())
    assert "lambda, global" in capsys.readouterr().out
    main(["bench", "picture", str(tmp_path / "report.json"), str(tmp_path / "sizes.png")])
    assert (tmp_path / "sizes.png").read_bytes().startswith(b"\x89PNG")


def test_growth_is_the_ratio_of_times(tmp_path, capsys):
    report = measure(tmp_path, "scaling")
    shown = capsys.readouterr().out
    for row in report["rows"]:
        assert row["case"] in shown
        small, large = row["ms"]
        assert row["growth"] == pytest.approx(large / small)
        assert all(peak is None or peak >= 0 for peak in row["peak_bytes"])


def test_the_cost_of_the_trainer_is_a_ratio(tmp_path, capsys):
    (row,) = measure(tmp_path, "training", "--steps", "4")["rows"]
    speeds = row["images_per_second"]
    assert row["ratio"] == pytest.approx(speeds["train"] / speeds["bare"])
    assert f"{row['ratio']:.1%}" in capsys.readouterr().out


def test_the_choice_of_plans_is_measured(tmp_path, capsys):
    report = measure(tmp_path, "plans")
    for row in report["rows"]:
        assert row["ms"][row["best"]] == min(row["ms"].values())
        assert row["ratio"] == pytest.approx(row["ms"][row["chosen"]] / row["ms"][row["best"]])
    bad = sum(row["ratio"] > 1.3 for row in report["rows"])
    assert f"{bad} of {len(report['rows'])} chosen plans take more than 1.3" in capsys.readouterr().out
    assert len(plans.jobs(plans.Settings())) >= 40


@needs_kernels
def test_the_limit_is_measured(tmp_path):
    for row in measure(tmp_path, "limit")["rows"]:
        products = {"forward": row["k"] + row["v"], "backward": 3 * row["k"] + 2 * row["v"]}
        for which, per_pair in products.items():
            flops = 2 * row["h"] * row["u"] * per_pair * row["pairs"]
            at_the_limit = 1e3 * flops / (1e9 * row["gemm_gflops"])
            assert row[f"{which}_percent"] == pytest.approx(100 * at_the_limit / row[f"{which}_ms"])


@pytest.mark.parametrize(("side", "scope"), [(7, 3), (5, 23), (11, 7)])
def test_pairs_are_counted_exactly(side, scope):
    index = relative_index(Grid.of((side, side), scope=scope), torch.arange(side * side))
    assert limit.Term(side, k=3, h=2, v=5, scope=scope, b=2).pairs == 2 * int((index >= 0).sum())


def test_a_limit_without_kernels_is_one_sentence(capsys, monkeypatch):
    monkeypatch.setattr("lambdanets.bench.limit.unavailable", lambda: "they were not built")
    with pytest.raises(SystemExit) as ended:
        main(["bench", "limit", "--quick"])
    assert ended.value.code == 1
    assert capsys.readouterr().err == "lambdanets bench limit: the native plan is not available: they were not built\n"


def test_models_are_compared_with_torchvisions_and_with_peers_layers(tmp_path, capsys):
    report = measure(tmp_path, "models")
    assert [row["pass"] for row in report["rows"]] == ["forward", "folded", "training"]
    for row in report["rows"]:
        peers = {f"lambda_resnet50 of {whom}" for whom in ("nothing", "lucidrains", "timm")}
        assert row["speed_of_resnet50"].keys() == {"resnet50", "lambda_resnet50", "CCLL", *peers}
        for name, speed in row["speed_of_resnet50"].items():
            best = {network: min(ms.values()) for network, ms in row["ms"].items()}
            assert speed == pytest.approx(best["resnet50"] / best[name])
    assert "lambda_resnet50 of timm" in capsys.readouterr().out


def test_networks_of_peers_layers_are_ours_once_adopted():
    """The same architecture: with the weights taken over, the same answers."""
    x = torch.randn(2, 3, 64, 64)
    for name in ("lambda_resnet50 of lucidrains", "lambda_resnet50 of timm"):
        theirs = settle(networks()[name](), x).eval()
        ours = adopt(deepcopy(theirs), show=None)
        assert sum(isinstance(m, LambdaLayer2d) for m in ours.modules()) == 16
        agree({"ours": ours(x), "theirs": theirs(x)}, "theirs")


def test_folding_keeps_answers_or_raises():
    x = torch.randn(2, 3, 64, 64)
    network = fold_batch_norms(settle(networks()["lambda_resnet50"](), x), x)
    norms = [name for name, m in network.named_modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert norms
    assert all("middle_norm" in name for name in norms)  # those behind lambda layers
    crossed = torch.nn.Sequential()
    crossed.convolution, crossed.norm = torch.nn.Conv2d(3, 3, 1), torch.nn.BatchNorm2d(3)
    crossed.forward = lambda x: crossed.convolution(crossed.norm(x))
    with pytest.raises(CannotBenchmarkError, match="folded and unfolded differ"):
        fold_batch_norms(settle(crossed, x), x)


def test_an_absent_peer_is_left_out_with_the_reason(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert absent().keys() == {"lucidrains", "timm"}
    assert "timm is not installed" in absent()["timm"]
    assert field(Shape(7, 16)) == ["lambdanets", "conv3x3", "attention"]


@pytest.mark.parametrize("name", CONTESTANTS)
def test_contestants_stand_in_the_same_place(name):
    shape = Shape(7, 16, b=2, scope=5, format="channels-last")
    if name not in field(shape):
        pytest.skip(absent()[name])
    assert build(name, shape)(shape.input()).shape == (2, 16, 7, 7)


@pytest.mark.skipif(not RESET_PEAK.exists(), reason="this system does not tell the peak memory of a process")
def test_peak_memory_sees_what_a_step_keeps():
    """An attention over 40 x 40 positions keeps more than its 2 x 1600 x 16 numbers of output, and not gigabytes."""
    bytes_ = peak("attention", Shape(40, 16, b=2))
    assert 4 * 2 * 1600 * 16 < bytes_ < 1e9


def test_the_best_of_all_rounds_counts():
    """Contestants take turns after one run each that does not count."""
    turns = []
    best = best_times({name: lambda name=name: turns.append(name) for name in "ab"}, range(3))
    assert turns == list("ab" + ("a" * TURN + "b" * TURN) * 3)
    assert best.keys() == {"a", "b"}
