"""A file is whole or not there."""

import hashlib
from contextlib import suppress

import pytest

from lambdanets.files import atomic_path, sha256, write_atomically


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
