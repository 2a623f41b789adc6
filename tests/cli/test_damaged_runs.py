"""Run folders made by others: one clear line for each, nothing hidden, nothing that a terminal obeys, nothing hangs."""

import json
import os
import re
import shutil
import signal
import socket
import unicodedata
from contextlib import contextmanager

import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import load_file, save_file

from lambdanets.cli.main import main
from lambdanets.files import sha256
from lambdanets.train import checkpoints
from tiny import TINY

pytestmark = pytest.mark.unchecked
PATIENCE = 60  # seconds: a command on a damaged folder takes a fraction of one, unless it hangs

HOSTILE = "\x1b]0;title\x07\x1b[2J[red]x[/y] :cat:\u202egnp.\x85\nforged \ud800"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run, and an image."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("trained")
    main(["train", "digits", "--runs", str(folder), "--name", "good", *TINY, "trainer.max_epochs=1", "data.workers=0"])
    Image.new("L", (8, 8), 99).save(folder / "image.png")
    return folder


@pytest.fixture
def runs(trained, tmp_path):
    """Two runs, good and bad, the second of which a test damages."""
    for name in ("good", "bad"):
        ignored = shutil.ignore_patterns("*.png", "tensorboard")
        shutil.copytree(trained / "good", tmp_path / "runs" / name, ignore=ignored)
    return tmp_path / "runs"


class HangingError(BaseException):
    """Not an error that a command may catch."""


@contextmanager
def no_longer_than(seconds):
    def give_up(*_):
        raise HangingError

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(capsys, *arguments):
    """The exit code, and the lines on stdout and on stderr, in which there is nothing that a terminal obeys."""
    code = 0
    capsys.readouterr()
    with no_longer_than(PATIENCE):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
    out = capsys.readouterr()
    for text in out:
        obeyed = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - {"\n"}
        assert not obeyed, repr(text)
    return code, out.out.splitlines(), out.err.splitlines()


def use(capsys, command, runs, image):
    """A command on the run `bad`."""
    arguments = {
        "predict": ["predict", "bad", image, "--runs", runs],
        "eval": ["eval", "bad", "--runs", runs],
        "resume": ["train", "--resume", "bad", "--runs", runs],
        "export": ["export", runs / "bad" / "model", "-o", runs.parent / "x.pt2"],
        "profile": ["profile", runs / "bad" / "model", "--batch", "1", "--rounds", "1"],
    }
    return run(capsys, *arguments[command])


def refused(capsys, command, runs, image, name):
    """In one line on stderr that names the file."""
    code, _, err = use(capsys, command, runs, image)
    assert code in (1, 2), err
    assert len(err) == 1, err
    assert name in err[0]
    return err[0]


def listed(capsys, runs):
    """What `lambdanets runs` says of the bad one; the good one is there as ever."""
    code, out, err = run(capsys, "runs", "--runs", runs)
    assert (code, err) == (0, [])
    assert [line for line in out if re.match(r" *good +classification +lambda_resnet14_small +digits ", line)]
    (line,) = (line for line in out if re.match(r" *bad\b", line))
    _, as_json, _ = run(capsys, "runs", "--runs", runs, "--json")
    assert {json.loads(line)["run"] for line in as_json} == {str(runs / name) for name in ("good", "bad")}
    return line


def replaced_by(make):
    def damage(path):
        path.unlink()
        make(path)

    return damage


def bind_socket(path):
    here = os.getcwd()
    os.chdir(path.parent)  # the path of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


def with_content(content):
    return lambda path: path.write_bytes(content)


FILES = {
    "missing": os.remove,
    "folder": replaced_by(os.mkdir),
    "pipe": replaced_by(os.mkfifo),
    "socket": replaced_by(bind_socket),
    "device": replaced_by(lambda path: path.symlink_to("/dev/zero")),
    "loop": replaced_by(lambda path: path.symlink_to(path)),
    "dangling": replaced_by(lambda path: path.symlink_to("nowhere")),
    "empty": with_content(b""),
    "not text": with_content(b"\xff\xfe\x00"),
    "zeros": with_content(bytes(100)),
    "large": lambda path: os.truncate(path, 2**40),  # and sparse
}
TEXTS = {
    "deep": with_content(b"[" * 1200),
    "deep and valid": with_content(b"[" * 500 + b"]" * 500),
    "open": with_content(b'{"a'),
    "null": with_content(b"null"),
    "list": with_content(b"[1, 2]"),
    "number": with_content(b"17"),
    "long number": with_content(b"1" * 5000),
    "text": with_content(json.dumps(HOSTILE).encode()),
}
YAML = {
    "refers to itself": with_content(b"model: &a {layer_options: {x: *a}}"),
    "a billion": with_content(
        b"a: &a [x,x,x,x,x,x,x,x,x]\n"
        + b"".join(b"%c: &%c [%s]\n" % (n, n, b",".join([b"*%c" % (n - 1)] * 9)) for n in b"bcdefghi")
    ),
    "tags": with_content(b"seed: !!int ''"),
    "code": with_content(b"seed: !!python/object/apply:os.system ['true']"),
    "date": with_content(b"seed: 2024-13-45"),
    "hexadecimal": with_content(b"seed: 0x" + b"f" * 5000),
    "keys": with_content(b"data: {[1]: 2}"),
    "surrogate": with_content(b'data: {source: "\\udcff\\e[31m"}'),
}
DAMAGES = {
    "run.json": FILES | TEXTS,
    "config.yaml": FILES | TEXTS | YAML,
    "model/config.json": FILES | TEXTS,
    "model/model.safetensors": FILES,
}
COMMANDS = {
    "run.json": ("predict", "eval", "resume"),
    "config.yaml": ("predict", "eval", "resume"),
    "model/config.json": ("predict", "eval", "export"),
    "model/model.safetensors": ("predict", "export"),
}
CASES = [(name, kind) for name, kinds in DAMAGES.items() for kind in kinds]


@pytest.mark.parametrize(("name", "kind"), CASES, ids=[" ".join(case) for case in CASES])
def test_a_file_that_is_none(runs, trained, capsys, name, kind):
    DAMAGES[name][kind](runs / "bad" / name)
    line = listed(capsys, runs)
    assert ("run.json" in line) == (name == "run.json")
    is_recipe = name == "config.yaml" and kind in ("empty", "null", "surrogate")  # only not that of a run
    for command in COMMANDS[name]:
        if command == "resume" and is_recipe:
            continue
        if name == "run.json" and kind == "missing":
            assert "there is no run bad" in refused(capsys, command, runs, trained / "image.png", "bad")
        else:
            refused(capsys, command, runs, trained / "image.png", os.path.basename(name))


def edit(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


NONE = [None, True, [], {}, [[1]], {"a": {"b": []}}, -1, float("nan"), float("inf"), 10**400, "", HOSTILE, "x" * 10**6]
NUMBERS = ("parameters", "epochs", "score", "seconds", "units_per_second", "waiting_share")
MAY_BE_NONE = ("finished", "score", "units_per_second", "waiting_share")


def is_fine(field, value):
    if field in MAY_BE_NONE and value is None:
        return True
    if field in ("model", "data", "started", "finished", "unit"):
        return isinstance(value, str)
    return field in ("parameters", "epochs") and value == 10**400


@pytest.mark.parametrize("field", ["task", "model", "data", "started", "finished", "unit", *NUMBERS])
def test_a_field_of_run_json(runs, trained, capsys, field):
    whole = (runs / "bad" / "run.json").read_text()
    for value in NONE:
        (runs / "bad" / "run.json").write_text(whole)
        edit(runs / "bad" / "run.json", **{field: value})
        line = listed(capsys, runs)
        if is_fine(field, value):
            assert "run.json" not in line
        else:
            assert re.search(rf"run\.json is damaged: .*{field}", line)
            assert len(line) < 1000


def test_runs_without_fields_or_with_others(runs, capsys):
    path = runs / "bad" / "run.json"
    whole = json.loads(path.read_text())
    for field in ("model", "data", "parameters", "started"):
        path.write_text(json.dumps({name: value for name, value in whole.items() if name != field}))
        assert f"run.json is damaged: it has no {field}" in listed(capsys, runs)
    path.write_text(json.dumps({**whole, HOSTILE: 1}))
    assert "it has unknown fields" in listed(capsys, runs)


METRICS = {
    "text": b"epoch,seconds,images_per_second\n1,soon,\x1b[31m\n",
    "nan": b"epoch,seconds,images_per_second\n1,nan,nan\n",
    "negative": b"epoch,seconds,images_per_second\n1,-1,5\n",
    "short": b"epoch,seconds,images_per_second\n1\n",
    "no column": b"epoch\n1\n",
    "accuracy": b"epoch,seconds,images_per_second,val_accuracy\n1,1,1,7\n",
    "long": b"epoch,seconds,images_per_second\n1,1," + b"9" * 200_000,
    "nul": b"epoch,seconds,images_per_second\n1,\0,1\n",
    "not text": b"epoch,seconds,images_per_second\n1,\xff,1\n",
}


@pytest.mark.parametrize("kind", [*METRICS, "folder", "pipe", "socket", "device", "loop", "zeros", "large"])
def test_metrics_of_an_unfinished_run(runs, capsys, kind):
    edit(runs / "bad" / "run.json", finished=None)
    (FILES.get(kind) if kind in FILES and kind not in METRICS else with_content(METRICS[kind]))(
        runs / "bad" / "metrics.csv"
    )
    assert re.search(r"metrics\.csv (is damaged|cannot be read): \S", listed(capsys, runs))


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("suffix", ["", ".sha256"])
def test_checkpoints_of_an_unfinished_run(runs, trained, capsys, kind, suffix):
    edit(runs / "bad" / "run.json", finished=None)
    for path in checkpoints.all_in(runs / "bad" / "checkpoints"):
        FILES[kind](path.with_name(f"{path.name}{suffix}"))
    refused(capsys, "predict", runs, trained / "image.png", "bad/checkpoints")


def hashed(path, state):
    path.unlink()
    checkpoints.save(state, path)


def without_average(state):
    del state["state_dict"]


def renamed(state):
    state["state_dict"] = {name.replace("stem", "root"): t for name, t in state["state_dict"].items()}


def resized(state):
    state["state_dict"] = {name: torch.zeros(3, 1) for name in state["state_dict"]}


def no_tensors(state):
    state["state_dict"] = dict.fromkeys(state["state_dict"], "x\x1b[31m")


def without_optimizer(state):
    del state["optimizer_states"]


def odd_callbacks(state):
    state["callbacks"] = dict.fromkeys(state["callbacks"], 7)


def odd_loops(state):
    state["loops"] = []


@pytest.mark.parametrize("damage", [without_average, renamed, resized, no_tensors])
@pytest.mark.parametrize("command", ["predict", "resume"])
def test_checkpoints_of_another_network(runs, trained, capsys, damage, command):
    edit(runs / "bad" / "run.json", finished=None)
    path, *_ = checkpoints.all_in(runs / "bad" / "checkpoints")
    state = checkpoints.load(path)
    damage(state)
    hashed(path, state)
    message(capsys, command, runs, trained, path.name)


@pytest.mark.parametrize("damage", [without_optimizer, odd_callbacks, odd_loops])
def test_checkpoints_of_another_training(runs, trained, capsys, damage):
    path, *_ = checkpoints.all_in(runs / "bad" / "checkpoints")
    state = checkpoints.load(path)
    damage(state)
    hashed(path, state)
    message(capsys, "resume", runs, trained, path.name)


def message(capsys, command, runs, trained, name):
    """The last line on stderr; a run that resumes prints its configuration before."""
    code, _, err = use(capsys, command, runs, trained / "image.png")
    assert code in (1, 2)
    assert err[-1].startswith("lambdanets ")
    assert name in err[-1]


@pytest.mark.parametrize("classes", [[], ["a"], [str(n) for n in range(9)], [str(n) for n in range(11)]])
def test_as_many_classes_as_outputs(runs, trained, capsys, classes):
    edit(runs / "bad" / "model" / "task.json", classes=classes)
    for command in ("predict", "eval", "resume"):
        line = refused(capsys, command, runs, trained / "image.png", "task.json")
        assert f"{len(classes)} classes" in line or (not classes and "it must have classes" in line)
    if classes:
        edit(runs / "bad" / "run.json", finished=None)
        assert "but the network has 10 outputs" in refused(capsys, "predict", runs, trained / "image.png", "task.json")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"mean": [0.5, 0.5], "std": [1, 1]}, "mean is (0.5, 0.5), but the network takes images with 1 channels"),
        ({"std": []}, "mean and std of each channel"),
        ({"std": [0]}, "std must be numbers above 0"),
        ({"mean": None}, "mean must be tuple"),
        ({"image_size": 10**9}, "image_size is 1000000000, but the network takes 8"),
        ({"crop": HOSTILE}, "crop must be"),
        ({"task": "other"}, "does not describe a task classification"),
        ({HOSTILE: 1}, "is missing or unknown"),
    ],
)
def test_a_field_of_task_json(runs, trained, capsys, change, complaint):
    edit(runs / "bad" / "model" / "task.json", **change)
    assert complaint in refused(capsys, "predict", runs, trained / "image.png", "task.json")


def test_a_run_of_an_earlier_version(runs, trained, capsys):
    """Classes in run.json, and no model/task.json."""
    folder = runs / "bad"
    state = json.loads((folder / "model" / "task.json").read_text())
    expected = use(capsys, "predict", runs, trained / "image.png")
    (folder / "model" / "task.json").unlink()
    known = json.loads((folder / "run.json").read_text())
    names = {"score": "accuracy", "units_per_second": "images_per_second"}
    old = {names.get(name, name): value for name, value in known.items() if name not in ("task", "unit")}
    (folder / "run.json").write_text(json.dumps({**old, "classes": state["classes"]}))
    assert use(capsys, "predict", runs, trained / "image.png") == expected
    assert use(capsys, "eval", runs, trained / "image.png")[0] == 0
    assert use(capsys, "resume", runs, trained / "image.png")[0] == 0
    (folder / "model" / "task.json").unlink()  # which resuming has written
    for classes, complaint in (
        ([], "it must have classes"),
        ([1], "classes must be a list of names"),
        (None, "classes"),
    ):
        (folder / "run.json").write_text(json.dumps({**old, "classes": classes}))
        assert complaint in refused(capsys, "predict", runs, trained / "image.png", "run.json")


def test_hostile_names_are_printed_as_text(runs, trained, capsys):
    """`run` looks for what a terminal obeys."""
    edit(runs / "bad" / "run.json", model=HOSTILE)
    edit(runs / "bad" / "model" / "task.json", classes=[f"{HOSTILE}{n}" for n in range(10)])
    image = runs / f"{HOSTILE[:-1].replace('/', '')}.png"
    shutil.copy(trained / "image.png", image)
    code, out, err = use(capsys, "predict", runs, image)
    assert (code, err) == (0, [])
    _, _, line = (line for line in out if line.strip())  # a heading, a rule, one image
    assert line.count(r"\x1b]0;title\x07\x1b[2J[red]x[/y] :cat:\u202egnp.\x85\nforged \ud800") == 5
    code, out, _ = run(capsys, "predict", "bad", image, "--runs", runs, "--json")
    assert HOSTILE in json.loads(out[0])["top"][0][0]
    assert r"[red]x[/y] :cat:\u202e" in listed(capsys, runs)
    line = refused(capsys, "eval", runs, image, "task.json")
    assert "class 0 is" in line


def test_hostile_names_of_files_and_runs(runs, trained, capsys):
    name = HOSTILE.replace("/", "")[:-1]
    (runs / "bad").rename(runs / name)
    code, _, err = run(capsys, "predict", name, trained / "absent\x1b[31m.png", "--runs", runs)
    assert (code, len(err)) == (1, 1)
    code, out, _ = run(capsys, "runs", "--runs", runs)
    assert len([line for line in out if "good" in line or r"\x1b]0" in line]) == 2
    os.rename(runs / name, os.fsencode(runs) + b"/\xff\xfe")  # a name that is not text
    (runs / os.fsdecode(b"\xff\xfe") / "run.json").write_text("{")
    code, out, _ = run(capsys, "runs", "--runs", runs)
    assert code == 0
    assert r"\udcff\udcfe: " in out[-1]


def test_a_run_that_must_not_be_read_is_not_hidden(runs, capsys, monkeypatch):
    """As somebody who is not root would see it."""

    def refuse(function):
        def call(path, *arguments, **more):
            if str(path).startswith(str(runs / "bad/")):
                raise PermissionError(13, "Permission denied", str(path))
            return function(path, *arguments, **more)

        return call

    monkeypatch.setattr("os.lstat", refuse(os.lstat))
    monkeypatch.setattr("os.stat", refuse(os.stat))
    assert "run.json cannot be read: Permission denied" in listed(capsys, runs)


def tree_of(path):
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"data": {"mean": None}}, "it lacks data.mean"),
        ({"data": {"image_size": None}}, "it lacks data.image_size"),
        ({"data": {"image_size": -3}}, "data.image_size must be at least 1"),
        ({"optim": {"lr": [1]}}, "optim.lr must be float"),
        ({"optim": {"lr": 10**400}}, "optim.lr must be float"),
        ({"optim": {"lr": "x" * 10**5}}, "optim.lr must be float"),
        ({"model": {"name": HOSTILE}}, "unknown model.name="),
        ({"optim": {HOSTILE: 1}}, "unknown key optim."),
    ],
)
def test_a_field_of_config_yaml(runs, trained, capsys, change, complaint):
    path = runs / "bad" / "config.yaml"
    tree = tree_of(path)
    for section, changes in change.items():
        tree[section].update(changes)
    path.write_text(yaml.safe_dump(tree))
    assert complaint in refused(capsys, "predict", runs, trained / "image.png", "config.yaml")


@pytest.mark.parametrize(
    "changes", [{"blocks": [10**9, 1, 1, 1]}, {"width": 10**15}, {"num_classes": 10**30}, {"k": "x"}]
)
def test_a_network_that_cannot_be(runs, trained, capsys, changes):
    edit(runs / "bad" / "run.json", finished=None)
    path = runs / "bad" / "config.yaml"
    tree = tree_of(path)
    tree["model"].update(changes)
    path.write_text(yaml.safe_dump(tree))
    refused(capsys, "predict", runs, trained / "image.png", "config.yaml")
    assert use(capsys, "resume", runs, trained / "image.png")[0] == 2


@pytest.mark.parametrize("name", ["metrics.csv", ".lock", "skipped.csv", "confusion.png", "model", "tensorboard"])
def test_a_pipe_where_a_run_writes(runs, trained, capsys, name):
    path = runs / "bad" / name
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    os.mkfifo(path)
    code, _, err = use(capsys, "resume", runs, trained / "image.png")
    assert code == 2
    assert re.search(rf"{re.escape(name)} is not a (regular file|folder)", err[-1])


def test_the_lock_of_a_run_empties_no_file(runs, trained, capsys, tmp_path):
    (tmp_path / "mine").write_text("mine")
    (runs / "bad" / ".lock").unlink()
    (runs / "bad" / ".lock").symlink_to(tmp_path / "mine")
    assert use(capsys, "resume", runs, trained / "image.png")[0] == 0
    assert (tmp_path / "mine").read_text() == "mine"


def reweigh(folder, change):
    """Other weights with the hash that belongs to them."""
    tensors = {name: change(name, tensor) for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    edit(folder / "config.json", sha256=sha256(folder / "model.safetensors"))


@pytest.mark.parametrize("command", ["predict", "export"])
def test_weights_of_another_dtype(runs, trained, capsys, command):
    reweigh(runs / "bad" / "model", lambda name, t: t.half() if t.is_floating_point() else t)
    line = refused(capsys, command, runs, trained / "image.png", "model.safetensors")
    assert "has the dtype float16, not float32" in line


def test_a_pipe_among_images_hangs_nothing(trained, tmp_path, capsys):
    for name in ("one", "two"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for n in range(20):
            shutil.copy(trained / "image.png", tmp_path / "images" / name / f"{n}.png")
    os.mkfifo(tmp_path / "images" / "one" / "pipe.png")
    run(
        capsys,
        *("train", "digits", "--runs", tmp_path / "runs", *TINY, "data.source=folder", "data.workers=0"),
        *(f"data.root={tmp_path / 'images'}", "data.batch_size=8", "trainer.max_epochs=1"),
    )
    skipped = (tmp_path / "runs" / "digits" / "skipped.csv").read_text()
    assert 'images/one/pipe.png,"it is a pipe, not a regular file"' in skipped


def test_there_is_one_place_that_prints():
    import ast
    from pathlib import Path

    import lambdanets.cli

    for path in Path(lambdanets.cli.__file__).parent.glob("*.py"):
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        names = {call.id for call in calls if isinstance(call, ast.Name)}
        assert "print" not in names or path.name == "output.py", path
        assert "Console" not in names, path
