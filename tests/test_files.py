"""A file is whole or not there."""

import hashlib
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from lambdanets.fields import refuse_nesting
from lambdanets.files import atomic_path, can_be_written, read_json, read_text, sha256, write_atomically


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "r.json"
    write_atomically(path, b"old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_hash_of_a_file(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"content" * 1000)
    assert sha256(path) == hashlib.sha256(b"content" * 1000).hexdigest()


def test_a_path_takes_its_name_when_it_is_whole(tmp_path):
    path = tmp_path / "m.bin"
    with atomic_path(path) as temporary:
        temporary.write_bytes(b"whole")
        assert temporary.parent == tmp_path
        assert not path.exists()
    assert path.read_bytes() == b"whole"
    with suppress(RuntimeError), atomic_path(path) as temporary:
        temporary.write_bytes(b"half")
        raise RuntimeError("wrong")
    assert path.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_one_and_its_file_is_replaced(tmp_path):
    link, inner = tmp_path / "link", tmp_path / "inner"
    inner.mkdir()
    link.symlink_to(inner / "target")
    for content in (b"first", b"second"):  # the target is made, then replaced
        write_atomically(link, content)
        assert link.is_symlink()
        assert (inner / "target").read_bytes() == content
    assert {*tmp_path.rglob("*")} == {link, inner, inner / "target"}


def test_a_pipe_stays_one_and_gets_what_was_written(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_atomically(pipe, b"content" * 100_000)
    reader.join()
    assert read == [b"content" * 100_000]
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.mark.parametrize("name", ["/dev/stdout", "log"])
@pytest.mark.parametrize("redirect", [">", ">>"])
def test_what_is_printed_to_keeps_what_it_has(tmp_path, name, redirect):
    log = tmp_path / "log"
    log.write_text("before\n")
    program = (
        "from pathlib import Path; from lambdanets.files import write_atomically; print('first');"
        f"write_atomically(Path({name!r}), b'written\\n'); print('last')"
    )
    command = f'"{sys.executable}" -c "{program}" {redirect} log'
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
    kept = "before\n" if redirect == ">>" else ""
    assert log.read_text() == f"{kept}first\nwritten\nlast\n"
    assert list(tmp_path.iterdir()) == [log]


def test_what_can_be_written(tmp_path):
    broken = tmp_path / "broken"
    broken.symlink_to(tmp_path / "no" / "target")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path, answer in [(tmp_path / "new", True), (tmp_path, False), (tmp_path / "no" / "new", False)]:
        assert can_be_written(path) is answer
    assert not can_be_written(broken)
    assert can_be_written(loop)


def test_text_is_read_from_regular_files_only(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("naïve\r\n".encode())
    (tmp_path / "link").symlink_to(path)
    assert read_text(path) == read_text(tmp_path / "link") == "naïve\r\n"
    assert read_text(path, 8) == "naïve\r\n"
    with pytest.raises(OSError, match="it has more than 7 bytes"):
        read_text(path, 7)
    path.write_bytes(b"\xff")
    with pytest.raises(UnicodeDecodeError):
        read_text(path)
    os.mkfifo(tmp_path / "pipe")
    for special, kind in [(tmp_path / "pipe", "a pipe"), (Path("/dev/zero"), "a device")]:
        for read in (read_text, sha256, read_json):
            with pytest.raises(OSError, match=f"it is {kind}, not a regular file"):
                read(special)
    with pytest.raises(IsADirectoryError):
        read_text(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_text(tmp_path / "absent")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "its values are nested too deeply"),
        ("[" * 40 + "]" * 40, "its values are nested more than 32 deep"),
        (f"[{'0,' * 1_000_001}0]", "it has more than 1,000,000 values"),
        ("1" * 5000, "Exceeds the limit"),
        ("{", "Expecting property name"),
        ("", "Expecting value"),
    ],
)
def test_json_that_is_none(tmp_path, text, message):
    (tmp_path / "f.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_json(tmp_path / "f.json")


def test_json_comes_back(tmp_path):
    value = {"a": [1, 2.5, None, True, "é"], "b": {"c": []}}
    (tmp_path / "f.json").write_text(json.dumps(value))
    assert read_json(tmp_path / "f.json") == value


def test_a_value_that_holds_itself_is_refused():
    value = []
    value.append(value)
    with pytest.raises(ValueError, match="nested more than 32 deep"):
        refuse_nesting({"a": value})
