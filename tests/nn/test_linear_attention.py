"""Attention in linear time: how it grows, what it equals, what it refuses."""

import linformer
import performer_pytorch
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from compare import LargestTensor, assert_close, error, with_gradients
from lambdanets.nn.attention.double import Double2d, DoubleMixer
from lambdanets.nn.attention.efficient import Efficient2d, EfficientMixer
from lambdanets.nn.attention.global_attention import AttentionMixer
from lambdanets.nn.attention.linear import Linear2d, LinearMixer
from lambdanets.nn.attention.projected import Projected2d, ProjectedMixer
from lambdanets.ops import content_term
from lambdanets.ops.attention.double import gather_and_distribute
from lambdanets.ops.attention.linear import linear_attention, positive_features

ON_TOKENS = {
    "linear": lambda: LinearMixer(12, h=3),
    "causal": lambda: LinearMixer(12, h=3, causal=True),
    "efficient": lambda: EfficientMixer(12, h=3),
    "double": lambda: DoubleMixer(12),
    "projected": lambda: ProjectedMixer(12, h=3, size=4096, rank=16),
}
every_layer = pytest.mark.parametrize("make", ON_TOKENS.values(), ids=ON_TOKENS)


def draw(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype)


def heads(b=2, n=37, m=37, h=3, k=5, v=7):
    return {"q": draw(b, n, h, k), "keys": draw(b, m, h, k), "values": draw(b, m, h, v)}


def made_and_kept(layer, n):
    """Sizes of all tensors that a training step makes, and of all that wait for the backward pass."""
    x = torch.randn(1, n, 12, requires_grad=True)
    made, kept = [], {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // tensor.element_size()
        return tensor

    with LargestTensor(made), torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        layer(x).sum().backward()
    return made, sum(kept.values())


@every_layer
def test_memory_is_linear_in_positions(make):
    layer, n = make(), 1024
    (made, kept), (made_4, kept_4) = made_and_kept(layer, n), made_and_kept(layer, 4 * n)
    assert max(made_4) <= 4.6 * max(made)
    assert sum(made_4) <= 4.6 * sum(made)
    assert kept_4 <= 4.6 * kept
    assert max(made_4) < n * n


@pytest.mark.parametrize("chunk", [1, 3, 16, 64])
@pytest.mark.parametrize("padded", [False, True], ids=["all", "padded"])
def test_chunks_do_not_matter(chunk, padded):
    rows = torch.rand(2, 37) < 0.7 if padded else None
    if padded:
        rows[:, :2] = False  # the first two queries find nothing

    def pairs(leaves):
        q, keys = positive_features(leaves["q"]), positive_features(leaves["keys"])
        map_ = torch.einsum("bnhk,bmhk->bhnm", q, keys).tril()
        map_ = map_ if rows is None else map_ * rows[:, None, None]
        total = map_.sum(-1, keepdim=True)
        return torch.einsum("bhnm,bmhv->bnhv", map_ / torch.where(total > 0, total, 1.0), leaves["values"])

    tensors = heads()
    ours = with_gradients(lambda leaves: linear_attention(**leaves, rows=rows, causal=True, chunk=chunk), tensors)
    assert_close(ours, with_gradients(pairs, tensors), 1e-10)


@pytest.mark.parametrize("layer", [LinearMixer(12, h=3, causal=True), Linear2d(12, h=3, causal=True)], ids=repr)
def test_causal_never_uses_the_future(layer):
    x = torch.randn((2, 43, 12) if isinstance(layer, LinearMixer) else (2, 12, 6, 8))
    n = 43 if isinstance(layer, LinearMixer) else 48

    def flat(t):
        return t if isinstance(layer, LinearMixer) else t.flatten(2).transpose(1, 2)

    expected = flat(layer(x))
    for split in (1, 16, 17, 40):
        changed = x.clone()
        flat(changed)[:, split:] += torch.randn(2, n - split, 12)
        y = flat(layer(changed))
        assert torch.equal(y[:, :split], expected[:, :split])
        assert not torch.equal(y[:, split], expected[:, split])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True], ids=["all", "padded"])
def test_linear_attention_is_a_content_only_lambda(causal, padded):
    """Keys phi(k) that are not normalised; the denominator is the same lambda layer on values of one."""
    tensors = heads(m=37 if causal else 29)
    q, keys, values = positive_features(tensors["q"]), positive_features(tensors["keys"]), tensors["values"]
    rows = torch.rand(2, values.shape[1]) < 0.7 if padded else None
    if padded:
        rows[:, 0] = True
    options = {"key_norm": "none", "causal": causal, "mask": None if rows is None else rows[:, None]}
    expected = []
    for i in range(3):
        one = (q[:, :, i : i + 1], keys[:, :, i, :, None])
        found = content_term(*one, values[:, :, i, :, None], **options)
        expected.append(found / content_term(*one, torch.ones_like(values[:, :, i, :1, None]), **options))
    assert error(linear_attention(**tensors, rows=rows, causal=causal), torch.cat(expected, 2)) < 1e-12


def test_efficient_attention_is_a_content_only_lambda():
    """The keys are normalised as a lambda layer does it; the queries are distributions over k."""
    tensors = heads(m=29)
    q, keys, values = tensors["q"].softmax(-1), tensors["keys"], tensors["values"]
    expected = [content_term(q[:, :, i : i + 1], keys[:, :, i, :, None], values[:, :, i, :, None]) for i in range(3)]
    assert error(gather_and_distribute(**tensors), torch.cat(expected, 2)) < 1e-12


def test_efficient_attention_is_a_mean_of_the_values():
    """Without ever being formed, the map of attention has rows that sum to one."""
    tensors = heads()
    ones = torch.ones_like(tensors["values"])
    assert error(gather_and_distribute(**{**tensors, "values": ones}), ones) < 1e-12


def test_double_attention_is_efficient_attention_with_one_head():
    double, efficient = DoubleMixer(12, 6, k=5, v=6), EfficientMixer(12, 6, h=1, k=5)
    efficient.load_state_dict({f"heads.{name.removeprefix('heads.')}": w for name, w in double.state_dict().items()})
    x = torch.randn(2, 11, 12)
    assert error(double(x), efficient(x)) < 1e-6


def test_multiquery_is_attention_whose_heads_have_the_same_keys_and_values():
    one, many = AttentionMixer(12, h=3, k=5, g=1), AttentionMixer(12, h=3, k=5)
    shared = one.state_dict()
    for name in ("heads.key.weight", "heads.value.weight"):
        shared[name] = shared[name].repeat(3, 1)
    many.load_state_dict(shared)
    x = torch.randn(2, 11, 12)
    assert error(one(x), many(x)) < 1e-6


def test_small_weights_do_not_vanish():
    """elu(x) + 1 in float32 is zero for all of these keys."""
    tensors = {name: t.float() for name, t in heads().items()}
    tensors["keys"] = tensors["keys"] - 40
    exact = linear_attention(**{name: t.double() for name, t in tensors.items()})
    assert error(linear_attention(**tensors), exact) < 1e-5


def test_positive_features_are_elu_and_one():
    x = draw(1000).mul(3)
    ours = with_gradients(lambda leaves: positive_features(leaves["x"]), {"x": x})
    assert_close(ours, with_gradients(lambda leaves: F.elu(leaves["x"]) + 1, {"x": x}), 1e-12)


@every_layer
def test_a_query_that_may_use_nothing_gets_zeros(make):
    layer, x = make(), torch.randn(2, 19, 12, requires_grad=True)
    mask = torch.ones(2, 1, 19, dtype=torch.bool)
    mask[1] = False
    y = layer(x, mask=mask)
    assert y[0].ne(0).all()
    assert y[1].eq(0).all()
    y.square().sum().backward()
    assert x.grad.isfinite().all()
    assert x.grad[1].eq(0).all()


def test_a_causal_query_before_all_that_may_be_used_gets_zeros():
    mask = (torch.arange(19) >= 5)[None, None]
    y = LinearMixer(12, h=3, causal=True)(torch.randn(2, 19, 12), mask=mask)
    assert y[:, :5].eq(0).all()
    assert y[:, 5:].ne(0).all()


def test_padding_is_as_if_it_were_not_there():
    for make in ON_TOKENS.values():
        layer, x = make(), torch.randn(2, 23, 12)
        mask = (torch.arange(23) < 17)[None, None]
        assert error(layer(x, mask=mask)[:, :17], layer(x[:, :17])) < 1e-6


def adopt(ours, theirs):
    """The weights of another package's layer, whose last projection must have no offset."""
    for name, their in {"query": "to_q", "key": "to_k", "value": "to_v", "out": "to_out"}.items():
        getattr(ours.heads, name).load_state_dict({"weight": getattr(theirs, their).weight})
    return ours


@pytest.mark.parametrize("causal", [False, True])
def test_linear_equals_performer_with_its_kernel_replaced(causal):
    """Its features are kernel(P x / k^1/4) + 0.001 with a random P; here P undoes the scale."""
    k = 5
    theirs = performer_pytorch.SelfAttention(
        12, heads=3, dim_head=k, causal=causal, nb_features=k, attn_out_bias=False, generalized_attention=True,
        kernel_fn=lambda x: F.elu(x) + (1 - 0.001),
    )  # fmt: skip
    theirs.fast_attention.projection_matrix.copy_(torch.eye(k) * k**0.25)
    theirs.to_out = torch.nn.Linear(15, 15, bias=False)
    ours = adopt(LinearMixer(12, 15, h=3, causal=causal), theirs)
    x = torch.randn(2, 37, 12)
    assert error(ours(x), theirs(x)) < 1e-5


def test_linear_equals_performer_on_another_context():
    k = 5
    theirs = performer_pytorch.CrossAttention(
        12, heads=3, dim_head=k, nb_features=k, attn_out_bias=False, generalized_attention=True,
        kernel_fn=lambda x: F.elu(x) + (1 - 0.001),
    )  # fmt: skip
    theirs.fast_attention.projection_matrix.copy_(torch.eye(k) * k**0.25)
    theirs.to_out = torch.nn.Linear(15, 15, bias=False)
    ours = adopt(LinearMixer(12, 15, h=3), theirs)
    x, context = torch.randn(2, 37, 12), torch.randn(2, 11, 12)
    assert error(ours(x, context), theirs(x, context=context)) < 1e-5


def test_efficient_equals_performer_without_features():
    theirs = performer_pytorch.SelfAttention(12, heads=3, dim_head=4, no_projection=True, attn_out_bias=False)
    ours, x = adopt(EfficientMixer(12, h=3), theirs), torch.randn(2, 37, 12)
    assert error(ours(x), theirs(x)) < 1e-5


@pytest.mark.parametrize("m", [None, 13, 11], ids=["itself", "largest", "smaller"])
def test_projected_equals_linformer(m):
    theirs = linformer.LinformerSelfAttention(12, 13, k=5, heads=3)
    torch.nn.init.zeros_(theirs.to_out.bias)
    ours = adopt(ProjectedMixer(12, h=3, size=13, rank=5), theirs)
    ours.of_keys.load_state_dict({"weight": theirs.proj_k.T})
    ours.of_values.load_state_dict({"weight": theirs.proj_v.T})
    x, context = torch.randn(2, 11, 12), None if m is None else torch.randn(2, m, 12)
    assert error(ours(x, context), theirs(x, context)) < 1e-5


def test_projected_sums_are_resized_with_the_map():
    layer = Projected2d(12, h=3, size=(4, 6), rank=5)
    constant = torch.randn(2, 12, 1, 1)
    expected = layer(constant.expand(-1, -1, 4, 6))[..., 0, 0]
    same = layer.of_keys.weight
    layer.resize((4, 6))
    assert layer.of_keys.weight is same
    layer.resize((8, 12))
    assert error(layer(constant.expand(-1, -1, 8, 12))[..., 0, 0], expected) < 1e-5
    assert layer.of_keys.size == (8, 12)


def test_projected_positions_keep_their_weights_on_smaller_maps():
    """A map that is cut, and the same map with zeros where it was cut."""
    layer, x, query = Projected2d(12, h=3, size=(4, 6), rank=5), torch.randn(2, 12, 3, 4), torch.randn(2, 12, 2, 2)
    assert error(layer(query, F.pad(x, (0, 2, 0, 1))), layer(query, x)) < 1e-6


@pytest.mark.unchecked
@pytest.mark.parametrize(
    "layer",
    [Linear2d(12), Efficient2d(12), Double2d(12), Projected2d(12, size=4), *(make() for make in ON_TOKENS.values())],
    ids=lambda layer: type(layer).__name__,
)
def test_masks_of_pairs_are_refused(layer):
    x = torch.randn((2, 12, 3, 4) if layer.dims == 2 else (2, 12, 12))
    with pytest.raises(ValueError, match=rf"{type(layer).__name__}: .*\(b, 1, m\), got shape \(1, 12, 12\)"):
        layer(x, mask=torch.ones(12, 12, dtype=torch.bool).tril())


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LinearMixer(10, h=4), "LinearMixer: .*d_out=10, h=4"),
        (lambda: LinearMixer(12, causal="yes"), "causal='yes'"),
        (
            lambda: LinearMixer(12, causal=True)(torch.randn(2, 5, 12), torch.randn(2, 7, 12)),
            r"LinearMixer: causal needs .* got \(5,\) and \(7,\)",
        ),
        (lambda: linear_attention(**heads(n=5, m=7), causal=True), "n=5, m=7"),
        (lambda: EfficientMixer(12, k=0), "EfficientMixer: .*k=0"),
        (lambda: Double2d(12, k=0), "Double2d: .*k=0"),
        (lambda: Double2d(12, v=-1), "Double2d: .*v=-1"),
        (lambda: Projected2d(12, size=(3, 4, 5)), r"Projected2d: .*size=\(3, 4, 5\)"),
        (lambda: ProjectedMixer(12, size=7, rank=0), "ProjectedMixer: .*rank=0"),
        (
            lambda: Projected2d(12, size=(3, 4))(torch.randn(2, 12, 3, 5)),
            r"Projected2d: .*\(3, 5\) is larger .*\(3, 4\); layer\.resize",
        ),
    ],
)
def test_errors_name_what_is_wrong(call, message):
    with pytest.raises(ValueError, match=message):
        call()
