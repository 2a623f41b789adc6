"""Bad input gets a ValueError that names the argument and the values."""

import pytest
import torch

from lambdanets import LambdaLayer1d, LambdaLayer2d, LambdaLayer3d, LambdaMixer
from lambdanets.nn import LambdaLayer
from lambdanets.ops import Grid, Relation, content_term, embedded_position_term, normalise_keys, position_term

pytestmark = pytest.mark.unchecked

CONSTRUCTORS = [
    (dict(d_in=10, h=4), r"d_out=10, h=4"),
    (dict(d_in=8, d_out=6, h=4), r"d_out=6, h=4"),
    (dict(d_in=0), r"d_in=0"),
    (dict(d_in=8.0), r"d_in=8\.0"),
    (dict(d_in=8, d_out=-4), r"d_out=-4"),
    (dict(d_in=8, d_context=0), r"d_context=0"),
    (dict(d_in=8, k=0), r"k=0"),
    (dict(d_in=8, h=0), r"h=0"),
    (dict(d_in=8, u=True), r"u=True"),
    (dict(d_in=8, scope=4), r"scope must be odd.*scope=\(4, 4\)"),
    (dict(d_in=8, scope=(3, 6)), r"scope=\(3, 6\)"),
    (dict(d_in=8, scope=(3, 3, 3)), r"scope=\(3, 3, 3\)"),
    (dict(d_in=8, scope=-3), r"scope=-3"),
    (dict(d_in=8, scope=None), r"scope=None.*size=None"),
    (dict(d_in=8, size=(7,)), r"size=\(7,\)"),
    (dict(d_in=8, scope="7"), r"scope='7'"),
    (dict(d_in=8, scope=None, size=7, dilation=2), r"scope=None, dilation=\(2, 2\)"),
    (dict(d_in=8, terms="content", scope=4), r"scope=\(4, 4\)"),
    (dict(d_in=8, scope=None, size=12, table=LambdaLayer2d(8).table), r"scope=\(23, 23\).*size=\(12, 12\)"),
    (dict(d_in=8, size=0), r"size=0"),
    (dict(d_in=8, stride=0), r"stride=0"),
    (dict(d_in=8, stride=(1, 2, 1)), r"stride=\(1, 2, 1\)"),
    (dict(d_in=8, dilation=0), r"dilation=0"),
    (dict(d_in=8, dilation=1.5), r"dilation=1\.5"),
    (dict(d_in=8, terms="all"), r"terms='all'"),
    (dict(d_in=8, key_norm="sigmoid"), r"key_norm='sigmoid'"),
    (dict(d_in=8, norm="layer"), r"norm='layer'"),
    (dict(d_in=8, causal="yes"), r"causal='yes'"),
    (dict(d_in=8, causal=1), r"causal=1"),
    (dict(d_in=8, causal=True, norm="batch"), r"norm=\"batch\".*causal=True"),
    (dict(d_in=8, causal="strict", norm="batch"), r"causal='strict'"),
    (dict(d_in=8, relations=0), r"relations=0"),
    (dict(d_in=8, position_bias="no"), r"position_bias='no'"),
    (dict(d_in=8, table_std=-1), r"table_std=-1"),
    (dict(d_in=8, relations=5, size=7), r"relations=5, size=\(7, 7\)"),
    (dict(d_in=8, relations=5, dilation=2), r"dilation=\(2, 2\)"),
    (dict(d_in=8, terms="content", position_bias=True), r"position_bias.*terms='content'"),
    (dict(d_in=8, terms="content", relations=5), r"relations.*terms='content'"),
    (dict(d_in=8, table=LambdaLayer2d(8, scope=7).table), r"shared table is .*rows=49.*ask for .*rows=529"),
    (dict(d_in=8, k=8, table=LambdaLayer2d(8).table), r"k=16.*k=8"),
    (
        dict(d_in=8, scope=(3, 15), table=LambdaLayer2d(8, scope=(15, 3)).table),
        r"scope=\(15, 3\).*scope=\(3, 15\)",
    ),
    (
        dict(d_in=8, table=torch.zeros(529, 16, 1)),
        r"table must be the `table` of another layer, got a Tensor",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), CONSTRUCTORS, ids=[m for _, m in CONSTRUCTORS])
def test_constructor(arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        LambdaLayer2d(**arguments)
    assert str(caught.value).startswith("LambdaLayer2d: ")


def mask(*shape):
    return torch.ones(shape, dtype=torch.bool)


FORWARDS = [
    (
        LambdaLayer2d(8),
        (2, 7, 5, 5),
        {},
        r"LambdaLayer2d: x must be \(b, 8, n1, n2\), got shape \(2, 7, 5, 5\)",
    ),
    (LambdaLayer2d(8), (2, 8, 5), {}, r"got shape \(2, 8, 5\)"),
    (LambdaLayer2d(8), (8, 5, 5), {}, r"got shape \(8, 5, 5\)"),
    (LambdaLayer1d(8), (2, 9, 8), {}, r"LambdaLayer1d: x must be \(b, 8, n\), got shape \(2, 9, 8\)"),
    (LambdaLayer3d(8, scope=3), (2, 8, 5, 5), {}, r"x must be \(b, 8, n1, n2, n3\)"),
    (LambdaMixer(8), (2, 8, 9), {}, r"LambdaMixer: x must be \(b, n, 8\), got shape \(2, 8, 9\)"),
    (LambdaMixer(8), (2, 9, 8), {"context": torch.randn(2, 9, 7)}, r"context must be \(b, n, 8\)"),
    (LambdaMixer(8), (2, 9, 8), {"context": torch.randn(3, 9, 8)}, r"same batch, got b=2 and 3"),
    (LambdaMixer(8, d_context=6), (2, 9, 8), {}, r"context must be \(b, n, 6\), got shape \(2, 9, 8\)"),
    (
        LambdaMixer(8),
        (2, 9, 8),
        {"mask": mask(9, 8)},
        r"mask must broadcast to .*\(2, 9, 9\), got shape \(9, 8\)",
    ),
    (LambdaMixer(8), (2, 9, 8), {"mask": mask(3, 9, 9)}, r"got shape \(3, 9, 9\)"),
    (LambdaMixer(8), (2, 9, 8), {"mask": mask(2, 1, 9, 9)}, r"got shape \(2, 1, 9, 9\)"),
    (LambdaMixer(8), (2, 9, 8), {"mask": torch.ones(9, 9)}, r"mask must be a boolean tensor.*float32"),
    (LambdaMixer(8), (2, 9, 8), {"mask": [True] * 9}, r"mask must be a boolean tensor.*list"),
    (LambdaMixer(8), (2, 9, 8), {"relation": torch.zeros(9, 9).long()}, r"relation=\(9, 9\), relations=None"),
    (LambdaMixer(8, relations=5), (2, 9, 8), {}, r"relation=None, relations=5"),
    (LambdaMixer(8, relations=5), (2, 9, 8), {"relation": torch.zeros(9, 8).long()}, r"got \(9, 8\)"),
    (LambdaMixer(8, relations=5), (2, 9, 8), {"relation": torch.zeros(9, 9)}, r"tensor of integers.*float32"),
    (LambdaMixer(8, relations=5), (2, 9, 8), {"relation": mask(9, 9)}, r"tensor of integers.*bool"),
    (LambdaMixer(8, relations=5), (2, 9, 8), {"relation": torch.full((9, 9), 5)}, r"5 rows.*from 5 to 5"),
    (LambdaMixer(8, relations=5), (2, 9, 8), {"relation": torch.full((9, 9), -1)}, r"from -1 to -1"),
    (
        LambdaLayer2d(8, scope=None, size=(5, 7)),
        (2, 8, 6, 7),
        {},
        r"map of size \(6, 7\) is larger than its global table for \(5, 7\); layer.resize\(\(6, 7\)\)",
    ),
    (
        LambdaMixer(8, scope=None, size=9),
        (2, 9, 8),
        {"context": torch.randn(2, 10, 8)},
        r"map of size \(10,\)",
    ),
]


@pytest.mark.parametrize(("layer", "shape", "options", "message"), FORWARDS, ids=[case[-1] for case in FORWARDS])
def test_forward(layer, shape, options, message):
    with pytest.raises(ValueError, match=message):
        layer(torch.randn(shape), **options)
    with pytest.raises(ValueError, match=message):
        layer.intermediates(torch.randn(shape), **options)


Q, KEYS, VALUES = torch.randn(2, 9, 4, 3), torch.randn(2, 9, 3, 1), torch.randn(2, 9, 5, 1)
OPS = [
    (lambda: content_term(Q, KEYS, VALUES, key_norm="l1"), r"key_norm.*'l1'"),
    (lambda: content_term(Q[:, :7], KEYS, VALUES, causal=True), r"n=7, m=9"),
    (lambda: content_term(Q, KEYS, VALUES, mask=mask(8)), r"\(2, 9, 9\), got shape \(8,\)"),
    (lambda: normalise_keys(KEYS, "max"), r"key_norm.*'max'"),
    (lambda: normalise_keys(KEYS, "softmax", mask(2, 9, 9).tril()), r"allowed of shape \(2, 9, 9\) keys must have 5"),
    (lambda: Grid((9,), (9,), (4,), (1,), (1,)), r"scope must be positive and odd.*\(4,\)"),
    (lambda: Grid((9,), (9,), (3,), (1,), (0,)), r"stride and dilation must be positive, got \(1,\) and \(0,\)"),
    (lambda: Grid((9,), (3, 3), (3,), (1,), (1,)), r"one entry per axis"),
    (
        lambda: position_term(Q, VALUES, torch.randn(5, 3, 1), Grid((9,), (9,), (3,), (1,), (1,))),
        r"3 rows.*got 5",
    ),
    (lambda: position_term(Q, VALUES, torch.randn(3, 3, 1), Grid((8,), (9,), (3,), (1,), (1,))), r"m=9"),
    (
        lambda: position_term(Q, VALUES, torch.randn(3, 3, 1), Relation(torch.full((9, 9), 3))),
        r"3 rows.*3 to 3",
    ),
    (lambda: embedded_position_term(Q, VALUES, torch.randn(9, 8, 3, 1)), r"n=9, m=9.*\(9, 8, 3, 1\)"),
]


@pytest.mark.parametrize(("call", "message"), OPS, ids=[m for _, m in OPS])
def test_ops(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_rest_of_a_layer():
    with pytest.raises(ValueError, match="only a table of grid offsets can be resized"):
        LambdaMixer(8, terms="content").resize(9)
    with pytest.raises(ValueError, match="RelationTable"):
        LambdaMixer(8, relations=5).resize(9)
    with pytest.raises(ValueError, match="size=0"):
        LambdaMixer(8).resize(0)
    with pytest.raises(ValueError, match=r"at must hold positions from 0 to n - 1 = 8, got \[3, 9\]"):
        LambdaMixer(8).intermediates(torch.randn(2, 9, 8), at=[3, 9])
    with pytest.raises(ValueError, match=r"at must hold positions as integers, got torch\.bool"):
        LambdaMixer(8).intermediates(torch.randn(2, 9, 8), at=torch.ones(9) > 0)
    with pytest.raises(TypeError, match="use one of those"):
        LambdaLayer(8)
