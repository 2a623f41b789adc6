"""Lines and windows: what they cost, what they equal, what they see, what they refuse."""

import re

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from axial_attention import AxialAttention
from local_attention import LocalAttention

from compare import LargestTensor, error, randomise
from lambdanets.nn.attention.augmented import Augmented2d
from lambdanets.nn.attention.axial import Axial2d
from lambdanets.nn.attention.global_attention import Attention2d, AttentionMixer
from lambdanets.nn.attention.local import Local2d, LocalMixer
from lambdanets.nn.attention.relation import Relation2d
from lambdanets.nn.attention.vector import Vector2d
from lambdanets.ops.attention.neighbours import sum_around
from lambdanets.ops.attention.reference import windows

SIDE = 40  # of a map, or its square as the number of tokens
WITHOUT_PAIRS = {
    "axial": lambda: Axial2d(8, h=2, size=2 * SIDE),
    "local": lambda: Local2d(8, h=2),
    "local tokens": lambda: LocalMixer(8, h=2, causal=True),
    "relation": lambda: Relation2d(8, share=4),
    "pairwise": lambda: Vector2d(8, kind="pairwise", k=16),
    "patchwise": lambda: Vector2d(8, kind="patchwise"),
}
WINDOWS = {
    "local": lambda: Local2d(6, 10, h=2, scope=3),
    "relation": lambda: Relation2d(6, share=3, scope=3),
    "pairwise": lambda: Vector2d(6, 10, kind="pairwise", share=5, scope=3),
    "patchwise": lambda: Vector2d(6, 10, kind="patchwise", share=5, scope=3),
}


def each_of(layers):
    return pytest.mark.parametrize("make", layers.values(), ids=layers)


def made_and_kept(layer, side):
    """Sizes of all tensors that a training step makes, and of all that wait for the backward pass."""
    shape = (1, side * side, 8) if isinstance(layer, LocalMixer) else (1, 8, side, side)
    x = torch.randn(shape, requires_grad=True)
    made, kept = [], {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // tensor.element_size()
        return tensor

    with LargestTensor(made), torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        layer(x).sum().backward()
    return max(made), sum(kept.values())


@each_of(WITHOUT_PAIRS)
def test_no_map_of_all_pairs(make):
    layer = make()
    (largest, kept), (largest_4, kept_4) = made_and_kept(layer, SIDE), made_and_kept(layer, 2 * SIDE)
    assert largest < SIDE**4 // 4
    grows = 8 if isinstance(layer, Axial2d) else 4  # a line is as long as a side, a window is not
    assert largest_4 <= 1.15 * grows * largest
    assert kept_4 <= 1.15 * grows * kept


def test_local_attention_keeps_no_scores():
    n, h, scope = SIDE * SIDE, 2, 7
    assert made_and_kept(Local2d(8, h=h, scope=scope), SIDE)[1] < n * h * scope**2


def test_pairwise_attention_keeps_no_hidden_layer():
    layer = Vector2d(8, kind="pairwise", k=16)
    assert made_and_kept(layer, SIDE)[1] < SIDE**2 * layer.k * 49


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("positions", ["none", "relative"])
@pytest.mark.parametrize(
    ("local", "everywhere", "grid"), [(Local2d, Attention2d, (9, 13)), (LocalMixer, AttentionMixer, (47,))]
)
def test_local_attention_is_masked_global_attention(local, everywhere, grid, positions, causal):
    scope, size = 5, max(grid)
    ours = local(6, 10, h=2, scope=scope, positions=positions, causal=causal)
    theirs = everywhere(6, 10, h=2, positions=positions, size=size, causal=causal)
    theirs.heads.load_state_dict(ours.heads.state_dict())
    if positions == "relative":
        middle = slice(size - 1 - scope // 2, size + scope // 2)
        with torch.no_grad():
            for table, whole in zip(ours.offsets, theirs.offsets.tables, strict=True):
                whole.weight[middle] = table.weight
    x = torch.randn(2, 6, *grid) if len(grid) == 2 else torch.randn(2, *grid, 6)
    near = windows.window(grid, (scope,) * len(grid))
    assert error(ours(x), theirs(x, mask=near).double()) < 1e-5


def test_equals_the_package_axial_attention():
    theirs = AxialAttention(dim=12, dim_index=1, heads=3, num_dimensions=2, sum_axial_out=False)
    ours = Axial2d(12, h=3, positions="none", project_out=True)
    with torch.no_grad():
        for step, other in zip((ours.rows, ours.columns), theirs.axial_attentions, strict=True):
            step.heads.query.weight.copy_(other.fn.to_q.weight)
            keys, values = other.fn.to_kv.weight.chunk(2)
            step.heads.key.weight.copy_(keys)
            step.heads.value.weight.copy_(values)
            step.heads.out.weight.copy_(other.fn.to_out.weight)
            other.fn.to_out.bias.zero_()
    x = torch.randn(2, 12, 7, 5)
    # Theirs begins with columns.
    assert error(ours(x), theirs(x.transpose(2, 3)).transpose(2, 3).double()) < 1e-5


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_equals_the_package_local_attention(causal, padded):
    reach, n = 8, 48
    theirs = LocalAttention(reach, causal=causal, exact_windowsize=True, use_rotary_pos_emb=False)
    ours = LocalMixer(12, h=3, scope=2 * reach + 1, positions="none", causal=causal, project_out=False)
    x = torch.randn(2, n, 12)
    mask = torch.rand(2, n) < 0.8 if padded else None
    parts = (part.transpose(1, 2) for part in ours.heads(x, x))
    expected = theirs(*parts, mask=mask).transpose(1, 2).flatten(2)
    answer = ours(x, mask=None if mask is None else mask[:, None])
    if mask is not None:  # where there is nothing to read, ours is zero and theirs a mean of padding
        reads = answer.abs().sum(-1, keepdim=True) > 0
        assert reads.any()
        expected = expected * reads
    assert error(answer, expected.double()) < 1e-5


def seen(layer, at, grid=(7, 9)):
    """Which positions of the input the output at one of them depends on."""
    randomise(layer)
    x = torch.randn(1, 6, *grid, requires_grad=True)
    layer(x)[0, :, *at].square().sum().backward()
    return x.grad[0].abs().sum(0) > 0


def test_axial_attention_reaches_everything():
    assert seen(Axial2d(6, 10, h=2, size=9), (2, 3)).all()


@each_of(WINDOWS)
def test_a_window_is_all_that_is_seen(make):
    for at in ((2, 3), (0, 8), (6, 0)):
        expected = torch.zeros(7, 9, dtype=torch.bool)
        expected[max(at[0] - 1, 0) : at[0] + 2, max(at[1] - 1, 0) : at[1] + 2] = True
        assert torch.equal(seen(make(), at), expected)


@each_of(WINDOWS)
def test_windows_move_with_the_map(make):
    layer, x = make().double(), torch.randn(2, 6, 8, 9, dtype=torch.float64)
    moved = layer(x.roll((2, 1), (2, 3)))
    assert error(moved[:, :, 3:-1, 2:-1], layer(x)[:, :, 1:-3, 1:-2]) < 1e-12


def test_relation_without_preference_is_a_mean():
    layer, x = Relation2d(6, share=3, scope=5), torch.randn(2, 6, 7, 9)
    for parameter in layer.parameters():
        torch.nn.init.zeros_(parameter)
    assert error(layer(x), F.avg_pool2d(x, 5, 1, 2, count_include_pad=False).double()) < 1e-6


def test_patchwise_attention_with_fixed_weights_is_a_convolution():
    layer, x = Vector2d(6, 10, share=5, scope=3), torch.randn(2, 6, 7, 9)
    torch.nn.init.zeros_(layer.weigh.weight)
    torch.nn.init.normal_(layer.weigh.bias)
    values = F.conv2d(x, layer.value.weight[..., None, None])
    kernel = layer.weigh.bias.reshape(2, 1, 3, 3).repeat_interleave(5, 0)
    assert error(layer(x), F.conv2d(values, kernel, padding=1, groups=10).double()) < 1e-5


def test_sums_over_windows_have_second_derivatives():
    weights = torch.randn(1, 2, 1, 3, 2, 3, dtype=torch.float64, requires_grad=True)
    values = torch.randn(1, 2, 2, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(sum_around, (weights, values))
    assert torch.autograd.gradgradcheck(sum_around, (weights, values))


def test_tables_are_resized():
    layer = Axial2d(6, h=2, size=(5, 7))
    before = layer.rows.offsets.tables[0].weight
    layer.resize((5, 9))
    assert layer.columns.offsets.size == (5,)
    assert layer.rows.offsets.size == (9,)
    assert torch.equal(layer.rows.offsets.tables[0].weight[[0, 8, -1]], before[[0, 6, -1]])
    assert layer(torch.randn(1, 6, 5, 9)).shape == (1, 6, 5, 9)
    augmented = Augmented2d(6, h=2, size=5)
    augmented.resize(9)
    assert augmented(torch.randn(1, 6, 9, 9)).shape == (1, 6, 9, 9)


def test_attention_is_a_share_of_the_channels():
    layer = Augmented2d(128, h=8, kappa=0.5, upsilon=0.25, size=7)
    assert (layer.attention.heads.k, layer.attention.heads.v) == (20, 4)  # 128 * 0.5 / 8 would be 8
    assert layer.convolution.out_channels == 96
    assert Augmented2d(512, h=4, kappa=0.25, size=7).attention.heads.k == 32


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Axial2d(8), "Axial2d: relative positions need size, the largest map, got size=None"),
        (lambda: Axial2d(8, 10, positions="none"), "Axial2d: d_out must be divisible by h, got d_out=10, h=4"),
        (lambda: Local2d(8, scope=6), "Local2d: scope must be odd on every axis"),
        (lambda: Local2d(8, scope=None), "got scope=None"),
        (lambda: LocalMixer(8, scope=(3, 3)), "LocalMixer: scope must be one integer or 1 of them"),
        (lambda: Augmented2d(8, h=8, size=7), "got d_out=8, h=8, upsilon=0.1"),
        (lambda: Augmented2d(8, kappa=0.0, size=7), "Augmented2d: kappa must be above 0 and below 1, got kappa=0.0"),
        (lambda: Relation2d(8, 16), "Relation2d: values are not projected, so d_out is d_in, got d_in=8, d_out=16"),
        (lambda: Relation2d(12), "Relation2d: d_in must be divisible by share, got d_in=12, share=8"),
        (lambda: Relation2d(8, scope=None), "got scope=None"),
        (lambda: Vector2d(8, 12), "Vector2d: d_out must be divisible by share, got d_out=12, share=8"),
        (lambda: Vector2d(8, kind="both"), "Vector2d: kind must be one of 'pairwise', 'patchwise', got kind='both'"),
        (lambda: Vector2d(8, scope=None), "got scope=None"),
    ],
)
def test_arguments_are_checked(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


@pytest.mark.unchecked
@each_of({"axial": lambda: Axial2d(6, h=2, size=9), "augmented": lambda: Augmented2d(6, h=2, size=9), **WINDOWS})
def test_what_is_refused(make):
    layer, x = make(), torch.randn(2, 6, 7, 9)
    with pytest.raises(ValueError, match=r"2d: a mask must be the same for all queries.*63"):
        layer(x, mask=torch.ones(63, 63, dtype=torch.bool))
    with pytest.raises(ValueError, match="a separate context is not supported"):
        layer(x, x)


@pytest.mark.unchecked
def test_larger_maps_than_positions():
    with pytest.raises(ValueError, match=r"Axial2d: a map of size \(7, 9\) is larger than its positions for \(9, 8\)"):
        Axial2d(6, h=2, size=(9, 8))(torch.randn(2, 6, 7, 9))
