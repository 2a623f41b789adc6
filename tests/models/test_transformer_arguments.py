"""Transformers say in words what they cannot do, when they are made or called, in the name of what was made."""

import pytest
import torch
from torch import nn

from compare import error
from lambdanets.models import (
    DecoderBlock,
    EncoderBlock,
    EncoderDecoder,
    Transformer,
    TransformerDecoder,
    from_torch,
)
from lambdanets.nn import LocalMixer

N, M, D = 5, 7, 12


def test_unknown_options_are_named():
    for made, given in (
        (EncoderBlock, (D,)),
        (DecoderBlock, (D,)),
        (Transformer, (D, 1)),
        (TransformerDecoder, (D, 1)),
        (EncoderDecoder, (D, 1)),
    ):
        with pytest.raises(ValueError, match=rf"{made.__name__} has no heads, only .*hidden, .*, got heads=3"):
            made(*given, heads=3)


@pytest.mark.parametrize("mixer", ["local", "squeeze", LocalMixer])
def test_a_decoder_needs_a_mixer_that_reads_a_context(mixer):
    options = {"causal": False} if mixer == "squeeze" else {}
    with pytest.raises(ValueError, match=r"DecoderBlock: cross must read .* attention, .*, film do, got mixer="):
        TransformerDecoder(D, 1, mixer=mixer, **options)
    decoder = TransformerDecoder(D, 1, mixer=mixer, cross="attention", **options)
    assert decoder(torch.randn(2, N, D), torch.randn(2, M, D)).shape == (2, N, D)


@pytest.mark.unchecked
def test_masks_of_two_axes_are_of_tokens():
    pairs = torch.ones(N, N, dtype=torch.bool).tril()
    x, model = torch.randn(2, N, D), Transformer(D, 1)
    got = rf"a mask with two axes .*\(b, n\) = \(2, {N}\), .* three, \(b or 1, n, m\), got shape \({N}, {N}\)"
    with pytest.raises(ValueError, match=f"Transformer: {got}"):
        model(x, pairs)
    with pytest.raises(ValueError, match=f"EncoderBlock: {got}"):
        model.blocks[0](x, pairs)
    context = torch.randn(2, M, D)
    with pytest.raises(ValueError, match=rf"TransformerDecoder: a context_mask .* got shape \({N}, {M}\)"):
        TransformerDecoder(D, 1)(x, context, None, torch.ones(N, M, dtype=torch.bool))
    with pytest.raises(ValueError, match=rf"EncoderDecoder: a source_mask .* got shape \({N}, {N}\)"):
        EncoderDecoder(D, 1)(context, x, pairs)


def test_as_many_examples_as_tokens():
    """Two axes are tokens, three are pairs, whatever the sizes."""
    x, model = torch.randn(N, N, D), Transformer(D, 2).eval()
    mask = torch.ones(N, N, dtype=torch.bool).tril()
    expected = torch.cat([model(x[i : i + 1], mask[i : i + 1]) for i in range(N)])
    assert error(model(x, mask), expected.double()) < 1e-5
    causal = Transformer(D, 2, mixer_options={"causal": True}).eval()
    causal.load_state_dict(model.state_dict())
    assert error(model(x, mask[None]), causal(x).double()) < 1e-5


def test_dropout_that_is_left_out_is_told():
    theirs = nn.TransformerEncoderLayer(D, 3, dropout=0.25, batch_first=True)
    with pytest.warns(UserWarning, match=r"from_torch: dropout=0\.25 of attention weights is left out"):
        from_torch(theirs)


@pytest.mark.filterwarnings("error")
def test_no_warning_where_nothing_is_left_out():
    from_torch(nn.TransformerEncoderLayer(D, 3, dropout=0.25, batch_first=True).eval())
    from_torch(nn.TransformerEncoderLayer(D, 3, dropout=0.0, batch_first=True))


class Mine(nn.TransformerEncoderLayer):
    def forward(self, *arguments, **options):
        return 2 * super().forward(*arguments, **options)


def changed(layer, name, value):
    *parts, last = name.split(".")
    setattr(layer.get_submodule(".".join(parts)), last, value)
    return layer


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        (Mine(D, 3), "Mine is made from a class of torch.nn and may do something else"),
        (nn.TransformerEncoder(Mine(D, 3, batch_first=True), 1), "Mine is made from"),
        (changed(nn.TransformerEncoderLayer(D, 3), "norm2.eps", 0.1), r"LayerNorms of one eps.*norm2=.*eps=0\.1"),
        (changed(nn.TransformerEncoderLayer(D, 3), "norm2", nn.RMSNorm(D)), r"norm2=RMSNorm"),
        (changed(nn.TransformerDecoderLayer(D, 3), "multihead_attn.num_heads", 1), r"multihead_attn with num_heads=1"),
        (changed(nn.TransformerEncoderLayer(D, 3), "self_attn.add_zero_attn", True), r"add_zero_attn=True"),
        (
            changed(nn.TransformerEncoderLayer(D, 3), "self_attn", nn.MultiheadAttention(D, 3, add_bias_kv=True)),
            r"add_bias_kv=True",
        ),
    ],
    ids=["subclass", "subclass inside", "eps", "norm", "heads", "zero", "bias"],
)
def test_what_torchs_can_do_and_ours_cannot_is_refused(theirs, message):
    with pytest.raises(ValueError, match=message):
        from_torch(theirs.eval())


def test_frozen_weights_stay_frozen():
    theirs = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, 3, batch_first=True), 2, nn.LayerNorm(D)).eval()
    assert all(p.requires_grad for p in from_torch(theirs).parameters())
    theirs.layers[0].requires_grad_(False)
    ours = from_torch(theirs)
    trained = {name for name, p in ours.named_parameters() if p.requires_grad}
    assert trained == {name for name, _ in ours.named_parameters() if not name.startswith("blocks.0.")}
    assert not any(p.requires_grad for p in from_torch(theirs.requires_grad_(False)).parameters())


def test_a_decoder_is_told_once_whether_it_is_causal():
    for causal in (True, False):
        with pytest.raises(ValueError, match=rf"causal={causal} and mixer_options=.*'causal': {not causal}"):
            DecoderBlock(D, causal=causal, mixer_options={"h": 3, "causal": not causal})
        assert DecoderBlock(D, causal=causal, mixer_options={"h": 3, "causal": causal}).mix.layer.causal is causal
