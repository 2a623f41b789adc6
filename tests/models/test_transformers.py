"""Transformers: those of torch.nn with the same weights, any mixer in any block, nobody sees what he may not."""

import copy
import inspect

import pytest
import torch
from torch import nn

from compare import TOLERANCE, error, randomise
from lambdanets.models import (
    DecoderBlock,
    EncoderBlock,
    EncoderDecoder,
    Transformer,
    TransformerDecoder,
    from_torch,
)
from lambdanets.models.blocks import DropPath
from lambdanets.nn import LambdaMixer
from lambdanets.nn.attention.global_attention import AttentionMixer
from lambdanets.nn.registry import layer_class, list_layers

B, N, M, D, HIDDEN = 3, 11, 7, 12, 17
STYLES = [
    {"norm_first": first, "activation": activation, "bias": bias}
    for first in (False, True)
    for activation, bias in (("relu", True), ("gelu", True), (nn.GELU(), False))
]
every_style = pytest.mark.parametrize("style", STYLES, ids=lambda style: "-".join(map(str, style.values())))
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def theirs_of(kind, style, dtype=torch.float64, h=3):
    options = dict(dim_feedforward=HIDDEN, dropout=0.1, batch_first=True, layer_norm_eps=1e-3, dtype=dtype, **style)
    layer = kind(D, h, **options)
    if kind is nn.TransformerEncoderLayer:
        made = nn.TransformerEncoder(
            layer, 2, nn.LayerNorm(D) if style["norm_first"] else None, enable_nested_tensor=False
        )
    elif kind is nn.TransformerDecoderLayer:
        made = nn.TransformerDecoder(layer, 2, nn.LayerNorm(D) if style["norm_first"] else None)
    else:
        made = kind(D, h, 2, 3, **options)
    made = made.to(dtype).eval()
    scatter(made)
    return made


def scatter(module):
    """No parameter keeps a value at which a mistake could hide, and none is so large that rounding shows."""
    randomise(module)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.ndim > 1:
                parameter.mul_(parameter.shape[1] ** -0.5)
            elif "norm" in name and name.endswith("weight"):
                parameter.mul_(0.3).add_(1.0)


def tokens(n, dtype=torch.float64, seed=1):
    return torch.randn(B, n, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def present(n, seed=2):
    """Which tokens are there; the last is missing in all, the first in none."""
    there = torch.rand(B, n, generator=torch.Generator().manual_seed(seed)) < 0.7
    there[:, 0], there[:, -1] = True, False
    return there


def earlier(n):
    return torch.ones(n, n, dtype=torch.bool).tril()


@every_dtype
@every_style
def test_torchs_encoder(style, dtype):
    theirs, x, there = theirs_of(nn.TransformerEncoderLayer, style, dtype), tokens(N, dtype), present(N)
    ours = from_torch(theirs)
    causal = from_torch(theirs, causal=True)
    assert isinstance(ours, Transformer)
    assert not ours.training
    assert ours.blocks[0].mix.dropout.p == 0.1
    pairs = torch.rand(N, N, generator=torch.Generator().manual_seed(3)) < 0.6
    pairs[:, 0] = True
    expected = [
        (ours(x), theirs(x)),
        (ours(x, there), theirs(x, src_key_padding_mask=~there)),
        (ours(x, pairs[None]), theirs(x, mask=~pairs)),
        (causal(x), theirs(x, mask=~earlier(N), is_causal=True)),
        (causal(x, there), theirs(x, mask=~earlier(N), src_key_padding_mask=~there)),
        (ours(x, there[:, None] & earlier(N)), theirs(x, mask=~earlier(N), src_key_padding_mask=~there)),
    ]
    for mine, other in expected:
        assert error(mine, other.double()) < TOLERANCE[dtype]


@every_dtype
@every_style
def test_torchs_decoder(style, dtype):
    theirs = theirs_of(nn.TransformerDecoderLayer, style, dtype)
    x, context, there, around = tokens(N, dtype), tokens(M, dtype, 4), present(N), present(M, 5)
    ours, causal = from_torch(theirs), from_torch(theirs, causal=True)
    assert isinstance(ours, TransformerDecoder)
    masks = {"tgt_key_padding_mask": ~there, "memory_key_padding_mask": ~around}
    expected = [
        (ours(x, context), theirs(x, context)),
        (ours(x, context, there, around), theirs(x, context, **masks)),
        (causal(x, context), theirs(x, context, tgt_mask=~earlier(N), tgt_is_causal=True)),
        (causal(x, context, there, around), theirs(x, context, tgt_mask=~earlier(N), **masks)),
    ]
    for mine, other in expected:
        assert error(mine, other.double()) < TOLERANCE[dtype]


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@every_dtype
@every_style
def test_torchs_encoder_with_a_decoder(style, dtype):
    theirs = theirs_of(nn.Transformer, style, dtype)
    ours = from_torch(theirs, causal=True)
    assert isinstance(ours, EncoderDecoder)
    source, target, there, wanted = tokens(M, dtype), tokens(N, dtype, 4), present(M), present(N, 5)
    other = theirs(
        source,
        target,
        tgt_mask=~earlier(N),
        src_key_padding_mask=~there,
        memory_key_padding_mask=~there,
        tgt_key_padding_mask=~wanted,
    )
    assert error(ours(source, target, there, wanted), other.double()) < TOLERANCE[dtype]


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@every_dtype
def test_torchs_encoder_with_a_decoder_is_causal_only_if_asked(dtype):
    theirs = theirs_of(nn.Transformer, STYLES[0], dtype)
    ours, causal = from_torch(theirs), from_torch(theirs, causal=True)
    source, target = tokens(M, dtype), tokens(N, dtype, 4)
    masked = theirs(source, target, tgt_mask=~earlier(N))
    expected = [
        (ours(source, target), theirs(source, target)),
        (ours(source, target, target_mask=earlier(N)[None]), masked),
        (causal(source, target), masked),
    ]
    for mine, other in expected:
        assert error(mine, other.double()) < TOLERANCE[dtype]
    assert error(ours(source, target), masked.double()) > 1e-3


@pytest.mark.filterwarnings("ignore:from_torch")
def test_torchs_layers_and_what_becomes_of_them():
    for kind, ours_is in ((nn.TransformerEncoderLayer, EncoderBlock), (nn.TransformerDecoderLayer, DecoderBlock)):
        theirs = theirs_of(kind, STYLES[0]).layers[1].train()
        ours = from_torch(theirs)
        assert isinstance(ours, ours_is)
        assert ours.training
        context = () if ours_is is EncoderBlock else (tokens(M),)
        assert error(ours.eval()(tokens(N), *context), theirs.eval()(tokens(N), *context)) < 1e-10
        before = theirs.linear1.weight.clone()
        with torch.no_grad():
            ours.feed.layer.expand.weight.zero_()  # a copy, all of which trains
        assert torch.equal(theirs.linear1.weight, before)
        assert all(parameter.requires_grad for parameter in ours.parameters())
        assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())


@pytest.mark.unchecked
@pytest.mark.filterwarnings("ignore:from_torch")
def test_what_is_not_torchs_is_refused():
    with pytest.raises(ValueError, match=r"theirs must be a Transformer of torch\.nn, got Linear"):
        from_torch(nn.Linear(3, 3))
    with pytest.raises(ValueError, match="activation must be relu or gelu, got activation=SiLU"):
        from_torch(nn.TransformerEncoderLayer(D, 3, activation=nn.SiLU()))
    with pytest.raises(ValueError, match="activation=GELU"):
        from_torch(nn.TransformerEncoderLayer(D, 3, activation=nn.GELU(approximate="tanh")))


def options_for(name):
    """Of a mixer of D channels for N tokens."""
    known = {"h": 2, "size": N, "scope": 5}
    return {option: value for option, value in known.items() if option in arguments(name)}


def arguments(name):
    return inspect.signature(layer_class(name, "tokens")).parameters


@pytest.mark.parametrize("name", list_layers("tokens"))
def test_any_mixer_stands_in_an_encoder(name):
    model = Transformer(D, 2, hidden=HIDDEN, mixer=name, mixer_options=options_for(name))
    x = torch.randn(B, N, D, requires_grad=True)
    y = model(x)
    assert y.shape == x.shape
    y.square().sum().backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
    assert error(model.eval()(x[1:2]), model(x)[1:2].double()) < 1e-5


@pytest.mark.parametrize("name", [name for name in list_layers("tokens") if "causal" in arguments(name)])
def test_nobody_in_a_decoder_sees_the_future(name):
    """Not even in training, where statistics of a batch would tell."""
    options = options_for(name)
    cross = {} if "d_context" in arguments(name) else {"cross": "attention", "cross_options": {"h": 2}}
    model = TransformerDecoder(D, 2, mixer=name, mixer_options=options, **cross).double()
    x, context = tokens(N), tokens(M, seed=4)
    later = x.clone()
    later[:, 6:] = tokens(N, seed=5)[:, 6:]
    ours, other = model(x, context), model(later, context)
    assert error(other[:, :6], ours[:, :6]) < 1e-12
    assert error(other[:, 6:], ours[:, 6:]) > 1e-3


@pytest.mark.parametrize("mixer", ["attention", "lambda"])
def test_what_is_not_there_does_not_matter(mixer):
    model = EncoderDecoder(D, 2, mixer=mixer, mixer_options={"h": 2}).double()
    source, target, there = tokens(M), tokens(N, seed=4), present(M)
    other = source.masked_fill(~there[..., None], 1e3)
    frozen = copy.deepcopy(model)
    assert error(frozen(other, target, there), model(source, target, there)) < 1e-12
    assert error(frozen(other, target), model(source, target)) > 1e-3


def test_callables_make_mixers():
    x, context = tokens(N).float(), tokens(M, seed=4).float()
    model = Transformer(D, 2, mixer=LambdaMixer, mixer_options={"h": 3, "scope": 3})
    assert model(x).shape == x.shape
    assert model.blocks[1].mix.layer.h == 3
    decoder = TransformerDecoder(D, 2, mixer=AttentionMixer, cross=lambda d: AttentionMixer(d, h=2))
    assert decoder(x, context).shape == x.shape
    assert decoder.blocks[0].mix.layer.causal
    assert not decoder.blocks[0].cross.layer.causal
    alone = Transformer(D, 1, mixer=lambda d: nn.Identity())  # it is given nothing that it need not know
    assert alone(x).shape == x.shape


def test_a_context_of_another_width():
    decoder = TransformerDecoder(D, 2, cross_options={"d_context": 5, "h": 2})
    assert decoder(torch.randn(B, N, D), torch.randn(B, M, 5)).shape == (B, N, D)


@pytest.mark.parametrize("norm_first", [False, True])
def test_where_norms_stand(norm_first):
    block = EncoderBlock(D, norm_first=norm_first, hidden=HIDDEN, mixer="lambda", mixer_options={"h": 2}).eval()
    randomise(block)
    x = torch.randn(B, N, D)
    for part in (block.mix, block.feed):
        expected = x + part.layer(part.norm(x)) if norm_first else part.norm(x + part.layer(x))
        x_in, x = x, expected
        assert torch.equal(part(x_in), expected)
    stack = Transformer(D, 1, norm_first=norm_first)
    assert isinstance(stack.norm, nn.LayerNorm if norm_first else nn.Identity)


def test_dropout_and_drop_path():
    model = Transformer(D, 3, dropout=0.3, drop_path=0.4)
    assert [part.rate for part in model.modules() if isinstance(part, DropPath)] == [0.0, 0.0, 0.2, 0.2, 0.4, 0.4]
    x = torch.randn(B, N, D)
    assert not torch.equal(model(x), model(x))
    assert torch.equal(model.eval()(x), model(x))


def test_checkpointing_changes_nothing_but_memory():
    model, x, context = TransformerDecoder(D, 2).double(), tokens(N), tokens(M, seed=4)
    gradients = []
    for enabled in (False, True):
        model.set_grad_checkpointing(enabled)
        y = model(x, context, present(N), present(M))
        gradients.append(torch.autograd.grad(y.square().sum(), list(model.parameters())))
    for plain, again in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, again)


@pytest.mark.unchecked
@pytest.mark.parametrize("mixer", ["attention", "lambda"])
def test_compiles_and_exports(mixer):
    torch._dynamo.reset()
    model = EncoderDecoder(D, 2, mixer=mixer, mixer_options={"h": 2})
    inputs = (tokens(M).float(), tokens(N, seed=4).float(), present(M), present(N, 5))
    plain = copy.deepcopy(model)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert error(compiled(*inputs), plain(*inputs).double()) < 1e-5
    model.eval()
    batch = torch.export.Dim("b", min=2, max=64)
    program = torch.export.export(model, inputs, dynamic_shapes=({0: batch},) * 4)
    more = tuple(torch.cat([t, t[:1]]) for t in inputs)
    assert error(program.module()(*more), model(*more).double()) < 1e-5


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 0}, "Transformer: depth must be a positive integer, got depth=0"),
        ({"hidden": 0}, "hidden=0"),
        ({"activation": "swish"}, "activation='swish'"),
        ({"dropout": 1.0}, "EncoderBlock: dropout must be at least 0 and below 1, got dropout=1.0"),
        ({"drop_path": -0.1}, "drop_path="),
        ({"mixer": "attend"}, "unknown layer 'attend'"),
        ({"mixer_options": {"heads": 3}}, "AttentionMixer has no heads"),
    ],
)
def test_mistakes_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Transformer(D, **{"depth": 2, **options})
