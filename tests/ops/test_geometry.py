"""Indices, order and tables."""

import pytest
import torch
from hypothesis import given, settings

from lambdanets.ops import Grid, reference, relative_index, resize_table
from lambdanets.ops.geometry import past, reachable
from strategies import grids


@settings(max_examples=200)
@given(grid=grids())
def test_index_and_order_equal_the_oracle(grid):
    at = torch.arange(grid.n)
    earlier = reference.past(grid.context, grid.queries, grid.stride, grid.causal == "strict")
    index = reference.grid_index(grid.context, grid.queries, grid.scope, grid.stride, grid.dilation)
    if grid.causal:
        index = torch.where(earlier, index, -1)
    assert torch.equal(relative_index(grid, at), index)
    assert torch.equal(past(grid, at), earlier)
    some = torch.tensor([grid.n - 1, 0])
    assert torch.equal(relative_index(grid, some), index[some])
    assert torch.equal(past(grid, some), earlier[some])


@settings(max_examples=100)
@given(grid=grids())
def test_the_reachable_window_loses_nothing(grid):
    table = torch.randn(grid.rows, 2, 3)
    smaller, rows = reachable(grid, table)
    assert all(a <= b for a, b in zip(smaller.scope, grid.scope, strict=True))
    at = torch.arange(grid.n)
    full = reference.embeddings(table, relative_index(grid, at))
    assert torch.equal(reference.embeddings(rows, relative_index(smaller, at)), full)


def test_a_table_of_the_same_scope_stays_as_it_is():
    table = torch.randn(15, 2, 3)
    assert torch.equal(resize_table(table, (3, 5), (3, 5)), table)


@pytest.mark.parametrize(("old", "new"), [((3, 5), (7, 5)), ((5, 5), (9, 13)), ((9,), (3,)), ((1, 3), (5, 1))])
def test_resizing_keeps_middle_and_corners(old, new):
    table = torch.randn(torch.Size(old).numel(), 2, 3, dtype=torch.float64)
    resized = resize_table(table, old, new)
    assert resized.shape == (torch.Size(new).numel(), 2, 3)
    assert torch.allclose(resized[len(resized) // 2], table[len(table) // 2])
    if min(*old, *new, 2) > 1:
        assert torch.allclose(resized[[0, -1]], table[[0, -1]])


def test_a_linear_table_is_resized_exactly():
    """On a table that is linear in the offset, linear interpolation of the stretched offsets is exact."""
    axis = torch.linspace(-1, 1, 7, dtype=torch.float64)
    table = (2 * axis[:, None] + 3 * axis[None, :] + 1).reshape(49, 1, 1)
    axis = torch.linspace(-1, 1, 13, dtype=torch.float64)
    expected = (2 * axis[:, None] + 3 * axis[None, :] + 1).reshape(169, 1, 1)
    assert torch.allclose(resize_table(table, (7, 7), (13, 13)), expected)


def test_an_empty_grid():
    grid = Grid((0, 3), (0, 3), (3, 3), (1, 1), (1, 1))
    assert relative_index(grid, torch.arange(0)).shape == (0, 0)
