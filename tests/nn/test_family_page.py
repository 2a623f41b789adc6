"""What the page about the family shows with prompts is so."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "family.md"


def test_the_page_is_true():
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert failed == 0
    assert tried > 0
