"""The primitives of attention do what their equations say."""

import math

import pytest
import torch
from torch import nn

from compare import error, with_gradients
from lambdanets import AttentionMixer
from lambdanets.ops import attention as ops

B, N, M, H, K = 2, 5, 7, 3, 4


def draw(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype)


def test_scores_pair_by_pair():
    q, keys = draw(B, N, H, K), draw(B, M, H, K)
    w, of_q, of_keys, last = draw(H, K, K), draw(H, K, 6), draw(H, K, 6), draw(H, 6)
    by_pair = {
        "dot": lambda q, k, h: q @ k,
        "scaled": lambda q, k, h: q @ k / math.sqrt(K),
        "general": lambda q, k, h: q @ w[h] @ k,
        "additive": lambda q, k, h: last[h] @ torch.tanh(q @ of_q[h] + k @ of_keys[h]),
        "cosine": lambda q, k, h: q @ k / (q.norm() * k.norm()),
    }
    ours = {
        "dot": ops.dot_scores(q, keys),
        "scaled": ops.scaled_dot_scores(q, keys),
        "general": ops.general_scores(q, keys, w),
        "additive": ops.additive_scores(q, keys, of_q, of_keys, last),
        "cosine": ops.cosine_scores(q, keys),
    }
    for name, score in by_pair.items():
        for b in range(B):
            for h in range(H):
                expected = torch.stack([torch.stack([score(x, y, h) for y in keys[b, :, h]]) for x in q[b, :, h]])
                assert error(ours[name][b, h], expected) < 1e-12, name


def test_a_large_beta_is_hard_attention():
    scores = draw(11, M)
    assert error(ops.softargmax(scores, 1e4), ops.hardargmax(scores)) < 1e-6
    assert torch.equal(ops.softargmax(scores, math.inf), ops.hardargmax(scores))
    assert error(ops.softargmax(scores, 0.0), torch.full((11, M), 1 / M, dtype=torch.float64)) < 1e-12


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_rows_of_nothing_are_zero_and_have_no_gradient(dtype):
    scores = draw(4, M, dtype=dtype)
    scores[:, 3] = torch.nan  # where nobody may look
    scores.requires_grad_()
    mask = torch.rand(4, M) < 0.5
    mask[:, 3], mask[1] = False, False
    for attend in (ops.softargmax, lambda s, mask: ops.hard_attention_map(s, mask=mask)):
        a = attend(scores, mask=mask)
        assert a.dtype == dtype
        assert (a[~mask] == 0).all()
        rows = mask.any(-1)
        assert torch.allclose(a[rows].sum(-1).float(), torch.ones(int(rows.sum())), atol=1e-2)
        (gradient,) = torch.autograd.grad(a.float().square().sum(), scores)
        assert gradient.isfinite().all()


def test_hard_attention_has_the_gradient_of_soft():
    scores, cotangent = draw(6, M), draw(6, M)
    hard, soft = (
        with_gradients(lambda leaves, f=f: f(leaves["s"]) * cotangent, {"s": scores})
        for f in (ops.hard_attention_map, ops.softargmax)
    )
    assert error(hard["d s"], soft["d s"]) < 1e-12
    assert error(hard["output"], ops.hardargmax(scores) * cotangent) < 1e-12


def test_sampled_attention_looks_as_often_as_soft_attention_weighs():
    scores, beta = draw(M), 1.7
    generator = torch.Generator().manual_seed(0)
    many = ops.hard_attention_map(scores.expand(200_000, M), estimator="sampled", beta=beta, generator=generator)
    assert error(many.mean(0), ops.softargmax(scores, beta)) < 5e-3
    assert set(many.unique().tolist()) <= {0.0, 1.0} or error(many.sum(-1), torch.ones(len(many))) < 1e-12


@pytest.mark.parametrize("g", [1, 3])
def test_attend_equals_the_map_written_out(g):
    q, keys, values, bias = draw(B, N, H, K), draw(B, M, g, K), draw(B, M, g, 6), draw(1, H, N, M)
    mask = torch.rand(B, N, M) < 0.6
    mask[0, 2] = False

    def written_out(t):
        every = {name: t[name].repeat_interleave(H // g, 2) for name in ("keys", "values")}
        scores = ops.scaled_dot_scores(t["q"], every["keys"]) + t["bias"]
        return ops.weighted(ops.softargmax(scores, mask=mask[:, None]), every["values"])

    def ours(t):
        return ops.attend(t["q"], t["keys"], t["values"], bias=t["bias"], mask=mask)

    tensors = {"q": q, "keys": keys, "values": values, "bias": bias}
    expected = with_gradients(written_out, tensors)
    for name, result in with_gradients(ours, tensors).items():
        assert error(result, expected[name]) < 1e-10, name


def test_heads_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="got 2 and h=3"):
        ops.attend(draw(B, N, 3, K), draw(B, M, 2, K), draw(B, M, 2, K))


def test_attention_is_that_of_torch():
    d, h = 12, 3
    theirs = nn.MultiheadAttention(d, h, batch_first=True, dtype=torch.float64)
    ours = AttentionMixer(d, h=h, bias=True).double()
    weights = theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3)
    with torch.no_grad():
        for part, weight, bias in zip((ours.heads.query, ours.heads.key, ours.heads.value), *weights, strict=True):
            part.weight.copy_(weight)
            part.bias.copy_(bias)
        ours.heads.out.load_state_dict(theirs.out_proj.state_dict())
    x, context, padding = draw(B, N, d), draw(B, M, d), torch.rand(B, M) < 0.3
    padding[:, 0] = False
    assert error(ours(x), theirs(x, x, x)[0].detach()) < 1e-12
    assert error(ours(x, context), theirs(x, context, context)[0].detach()) < 1e-12
    expected = theirs(x, context, context, key_padding_mask=padding)[0].detach()
    assert error(ours(x, context, mask=~padding[:, None]), expected) < 1e-12
    causal = AttentionMixer(d, h=h, bias=True, causal=True).double()
    causal.load_state_dict(ours.state_dict())
    later = torch.ones(N, N, dtype=torch.bool).triu(1)
    assert error(causal(x), theirs(x, x, x, attn_mask=later)[0].detach()) < 1e-12


def test_heads_share_the_parameters_of_one():
    assert len({sum(p.numel() for p in AttentionMixer(24, h=h).parameters()) for h in (1, 2, 8)}) == 1


def test_sinusoidal_codes_go_on_past_any_length():
    codes = ops.sinusoidal_codes(5000, 32, dtype=torch.float64)
    assert torch.equal(codes[:100], ops.sinusoidal_codes(100, 32, dtype=torch.float64))
    shifted = codes[7:] @ codes[:-7].T  # how alike two positions are depends on their distance alone
    assert error(shifted.diagonal(), shifted[0, 0].expand(len(shifted))) < 1e-9
    assert codes.shape == (5000, 32)
    assert ops.sinusoidal_codes(3, 5).shape == (3, 5)


def test_without_projections_a_position_looks_at_itself():
    x = draw(50, 64)
    a = ops.softargmax(x @ x.T)
    assert torch.equal(a.argmax(-1), torch.arange(50))
    assert a.diagonal().min() > 0.99


def test_an_offset_without_a_row_is_refused():
    with pytest.raises(ValueError, match="5 rows has no embedding for offsets up to 3"):
        ops.relative_embeddings(draw(5, 2), 4, 2)
