"""A build that fails says why and leaves the library that is there as it was. The compilers here are shell scripts."""

import pytest

from lambdanets.kernels.build import CannotBuildError, build

# "Compiles" whatever it is given into a file that lists the arguments.
COMPILER = """#!/bin/sh
all="$*"
while [ $# -gt 0 ]; do [ "$1" = -o ] && output=$2; shift; done
if [ -n "$output" ]; then echo "$all" > "$output"; fi
"""


@pytest.fixture
def library(tmp_path):
    path = tmp_path / "liblambdanets.so"
    path.write_text("the old library")
    return path


@pytest.fixture
def use_compiler(tmp_path, monkeypatch):
    def use(then=""):
        script = tmp_path / "compiler"
        script.write_text(COMPILER + then)
        script.chmod(0o755)
        monkeypatch.setenv("CC", str(script))

    return use


def assert_untouched(library, tmp_path):
    assert library.read_text() == "the old library"
    assert [path.name for path in tmp_path.glob("liblambdanets*")] == [library.name]


def test_a_compiler_that_fails(library, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "/bin/false")
    with pytest.raises(CannotBuildError, match=r"`/bin/false .*` ended with 1"):
        build(library)
    assert_untouched(library, tmp_path)


def test_a_linker_that_fails_half_way(library, tmp_path, use_compiler):
    use_compiler('case "$all" in *-shared*) echo "no room" >&2; exit 3;; esac')
    with pytest.raises(CannotBuildError, match=r"(?s)-shared .*ended with 3:\nno room"):
        build(library)
    assert_untouched(library, tmp_path)


def test_no_compiler(library, tmp_path, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(CannotBuildError, match="no C compiler was found: install gcc or clang, or set CC"):
        build(library)
    assert_untouched(library, tmp_path)


def test_a_compiler_that_does_not_exist_is_named(library, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    with pytest.raises(CannotBuildError, match="CC='no-such-compiler -O2' was not found"):
        build(library)
    assert_untouched(library, tmp_path)


def test_a_compiler_that_works_replaces_the_library(library, tmp_path, use_compiler):
    use_compiler()
    assert build(library, ["-DMORE"]) == library
    assert "-shared" in library.read_text()
    assert "-fopenmp -DMORE" in library.read_text()
    assert [path.name for path in tmp_path.glob("liblambdanets*")] == [library.name]


def test_a_compiler_without_openmp_builds_without_threads(library, use_compiler):
    use_compiler('case "$all" in *-fopenmp*) exit 1;; esac')
    build(library)
    assert "-fopenmp" not in library.read_text()
