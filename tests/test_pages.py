"""What the pages of docs/ show with prompts is so."""

import doctest
from pathlib import Path

import pytest

PAGES = [page for page in sorted((Path(__file__).parents[1] / "docs").glob("*.md")) if ">>>" in page.read_text()]


def test_there_are_pages_with_prompts():
    assert {page.name for page in PAGES} >= {"family.md", "models.md"}


@pytest.mark.unchecked
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_is_true(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write files
    assert doctest.testfile(str(page), module_relative=False).failed == 0
