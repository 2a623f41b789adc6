"""Older layers are multi-head attention with one W_O, exactly; what the constructions cannot do is refused."""

import math

import pytest
import torch
from torch.nn.functional import conv2d, linear

from compare import error, with_gradients
from lambdanets.ops import attention as ops

B, N, D, OUT = 2, 5, 3, 7


def draw(*shape):
    return torch.randn(shape, dtype=torch.float64)


def test_fully_connected_is_attention():
    tensors = {"x": draw(B, N, D), "weight": draw(OUT, N * D)}
    ours = with_gradients(lambda t: ops.fully_connected_as_attention(t["x"], t["weight"]), tensors)
    torchs = with_gradients(lambda t: linear(t["x"].flatten(1), t["weight"])[:, None].repeat(1, N, 1), tensors)
    for name, expected in torchs.items():
        assert error(ours[name], expected) < 1e-10, name


def test_fully_connected_is_what_heads_with_one_output_projection_say():
    """Queries and keys that make the maps one-hot, values that are the input, and W_O behind."""
    x, weight = draw(B, N, D), draw(OUT, N * D)
    q = torch.eye(N, dtype=torch.float64).expand(B, N, N, N)  # head i asks for position i, wherever it stands
    keys = torch.eye(N, dtype=torch.float64)[:, None].expand(B, N, N, N)
    heads = ops.attend(q, keys, x[:, :, None].expand(B, N, N, D), beta=1e4)
    assert error(ops.fully_connected_as_attention(x, weight), heads.flatten(2) @ weight.T) < 1e-10


def test_a_layer_over_positions_is_read_off_where_it_belongs():
    """y_n = sum_m W[n, m] x_m: position n finds its own outputs in the nth part of the answer."""
    x, weight = draw(B, N, D), draw(N, N)
    every = torch.kron(weight, torch.eye(D, dtype=torch.float64))
    answer = ops.fully_connected_as_attention(x, every).unflatten(2, (N, D))
    own = torch.stack([answer[:, n, n] for n in range(N)], 1)
    assert error(own, weight @ x) < 1e-10


@pytest.mark.parametrize("sides", [(1, 1), (3, 3), (5, 3)])
def test_convolution_is_attention(sides):
    tensors = {"x": draw(B, D, 4, 6), "kernel": draw(OUT, D, *sides)}
    ours = with_gradients(lambda t: ops.convolution_as_attention(t["x"], t["kernel"]), tensors)
    torchs = with_gradients(lambda t: conv2d(t["x"], t["kernel"], padding="same"), tensors)
    for name, expected in torchs.items():
        assert error(ours[name], expected) < 1e-10, name


@pytest.mark.parametrize("sides", [(2, 3), (3, 4), (2, 2)])
def test_kernels_without_a_middle_are_refused(sides):
    with pytest.raises(ValueError, match=rf"kernel must be odd.*got kernel of shape \(7, 3, {sides[0]}, {sides[1]}\)"):
        ops.convolution_as_attention(draw(B, D, 4, 6), draw(OUT, D, *sides))


@pytest.mark.unchecked
def test_unknown_estimators_are_refused():
    with pytest.raises(ValueError, match="one of 'straight_through', 'sampled', got estimator='smapled'"):
        ops.hard_attention_map(draw(3, N), estimator="smapled")


@pytest.mark.parametrize("beta", [math.nan, -math.inf])
def test_temperatures_that_are_none_are_refused(beta):
    for attend in (ops.softargmax, lambda scores, beta: ops.hard_attention_map(scores, beta=beta)):
        with pytest.raises(ValueError, match=f"beta must be a number above minus infinity, got beta={beta}"):
            attend(draw(3, N), beta)
