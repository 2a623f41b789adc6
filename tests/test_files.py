"""A file is whole or not there."""

import hashlib

import pytest

from lambdanets.files import sha256, write_atomically


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
