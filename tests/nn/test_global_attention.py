"""Attention over all positions equals that of independent packages, with the same weights."""

import pytest
import torch
from timm.layers.attention import Attention as TimmAttention
from timm.layers.attention2d import MultiQueryAttentionV2
from timm.layers.bottleneck_attn import BottleneckAttn

from compare import error, randomise
from lambdanets.nn.registry import create_layer


@torch.no_grad()
def load(heads, parts, kind="weight"):
    for name, tensor in zip(("query", "key", "value"), parts, strict=True):
        getattr(heads.get_submodule(name), kind).copy_(tensor)


def test_relative_attention_equals_timms_bottleneck_attention():
    """Theirs adds positions to scores that are scaled already, so its tables stand for ours divided by k^1/2."""
    size, h, k = (5, 7), 2, 3
    theirs = BottleneckAttn(11, 6, feat_size=size, num_heads=h, dim_head=k).double()
    ours = create_layer("attention", 11, 6, h=h, k=k, size=size).double()
    randomise(theirs)
    load(ours.heads, theirs.qkv.weight.flatten(1).split([h * k, h * k, 6]))
    height, width = ours.offsets.tables
    with torch.no_grad():
        height.weight[..., 0].copy_(theirs.pos_embed.height_rel * k**0.5)
        width.weight[..., 0].copy_(theirs.pos_embed.width_rel * k**0.5)
    x = torch.randn(2, 11, *size, dtype=torch.float64)
    assert error(ours(x), theirs(x)) < 1e-12


@pytest.mark.parametrize("other", [None, (7, 2)], ids=["itself", "another context"])
def test_multiquery_attention_equals_timms(other):
    h, k, v = 3, 7, 5
    theirs = MultiQueryAttentionV2(11, h * v, num_heads=h, key_dim=k, value_dim=v).double()
    ours = create_layer("multiquery", 11, h * v, h=h, k=k, project_out=True).double()
    load(ours.heads, (theirs.query_proj.flatten(0, 1), theirs.key_proj.T, theirs.value_proj.T))
    ours.heads.out.load_state_dict({"weight": theirs.out_proj.flatten(1)})
    x = torch.randn(2, 11, 5, 3, dtype=torch.float64)
    context = None if other is None else torch.randn(2, 11, *other, dtype=torch.float64)
    assert error(ours(x, context), theirs(x, context)) < 1e-12


@pytest.mark.parametrize("causal", [False, True])
def test_attention_equals_timms(causal):
    theirs = TimmAttention(15, num_heads=3, qkv_bias=True).double()
    ours = create_layer("attention", 15, layout="tokens", h=3, bias=True, causal=causal).double()
    for kind in ("weight", "bias"):
        load(ours.heads, getattr(theirs.qkv, kind).chunk(3), kind)
    ours.heads.out.load_state_dict(theirs.proj.state_dict())
    x = torch.randn(2, 11, 15, dtype=torch.float64)
    assert error(ours(x), theirs(x, is_causal=causal)) < 1e-12
