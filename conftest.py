"""Examples in docstrings may use torch without importing it."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _torch_in_examples(doctest_namespace):
    doctest_namespace["torch"] = torch
