"""Layers at the edges of floating point and of size: half precision, NaN behind masks, nothing to look at."""

import copy

import pytest
import torch

from cases import CASES, CLASSES, IDS, LayerCase
from compare import error, randomise
from lambdanets import LambdaLayer1d, LambdaLayer2d, LambdaLayer3d, LambdaMixer
from lambdanets.ops import reference


def naive(case, x, weights, context=None, **options):
    """The oracle's own steps in the dtype of its inputs; the output on tokens."""
    tokens = case.layer is LambdaMixer

    def flat(t):
        return t if t is None or tokens else t.flatten(2).transpose(1, 2)

    return reference.lambda_layer(
        flat(x),
        flat(context),
        weights,
        size=case.grid,
        context_size=None if context is None else case.context_grid,
        training=False,
        **options,
        **case.oracle(),
    )


def to(dtype, tensors):
    return {name: t.to(dtype) if t.is_floating_point() else t for name, t in tensors.items()}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("autocast", [False, True], ids=["cast", "autocast"])
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_half_precision_is_as_good_as_naive_half_precision(case, autocast, dtype):
    """On 32 examples, so that neither error is that of a lucky few numbers."""
    kept = torch.float32 if autocast else dtype
    layer, (x, options) = case.build().eval(), case.inputs(b=32)
    randomise(layer)
    layer, x, options = layer.to(kept), x.to(kept), to(kept, options)
    weights = layer.state_dict()
    exact = naive(case, x.double(), to(torch.float64, weights), **to(torch.float64, options))
    with torch.no_grad(), torch.autocast("cpu", dtype, enabled=autocast):
        ours = layer(x, **options)
        simple = naive(case, x, weights, **options)
    assert ours.dtype == dtype
    assert ours.isfinite().all()
    ours = ours if case.layer is LambdaMixer else ours.flatten(2).transpose(1, 2)
    assert error(ours, exact) <= 2 * error(simple, exact)


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_training_in_half_precision_has_finite_gradients(case, dtype):
    layer, (x, options) = case.build(), case.inputs()
    with torch.autocast("cpu", dtype):
        y = layer(x, **options)
    y.float().square().mean().backward()
    assert y.dtype == dtype
    for name, parameter in layer.named_parameters():
        assert parameter.grad.dtype == torch.float32, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("layer", CLASSES, ids=lambda c: c.__name__)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("variant", ["padding", "masked", "cross masked", "causal padding"])
def test_what_stands_behind_a_mask_reaches_nothing(layer, variant, bad, training):
    """NaN in rows that no query may use: outputs and gradients are those of any other number there."""
    case = LayerCase(layer, variant)
    module, (x, options) = case.build().train(training), case.inputs()
    usable = torch.rand(3, options["mask"].shape[-1], generator=torch.Generator().manual_seed(3)) < 0.7
    options["mask"] = options["mask"] & usable[:, None]
    usable = options["mask"].any(1)
    hidden = x if options.get("context") is None else options["context"]
    first = outcome(module, x, options, usable)
    clean = copy.deepcopy(module.state_dict())
    module.load_state_dict(case.build().state_dict())
    flat = hidden.flatten(1, -2) if layer is LambdaMixer else hidden.flatten(2).transpose(1, 2)
    spoilt = flat.masked_fill(~usable[..., None], bad)
    spoilt = spoilt if layer is LambdaMixer else spoilt.transpose(1, 2).reshape(hidden.shape)
    if hidden is x:
        x = spoilt
    else:
        options["context"] = spoilt
    for ours, expected in zip(outcome(module, x, options, usable), first, strict=True):
        assert ours.isfinite().all()
        assert torch.equal(ours, expected)
    for name, value in module.state_dict().items():
        assert torch.equal(value, clean[name]), f"statistics of {name}"


def outcome(module, x, options, usable):
    """Outputs and gradients of all that a caller would use: padding's own outputs are not."""
    x = x.clone().requires_grad_()
    y = module(x, **options)
    y = y if isinstance(module, LambdaMixer) else y.flatten(2).transpose(1, 2)
    if "context" not in options:
        y = y * usable[..., None]
    gradients = torch.autograd.grad(y.square().sum(), [*module.parameters(), x])
    return [y.detach(), *gradients]


@pytest.mark.parametrize("key_norm", ["softmax", "l2", "none"])
@pytest.mark.parametrize("layer", [LambdaLayer1d, LambdaMixer])
def test_an_empty_context_gives_zeros(layer, key_norm):
    module = layer(8, k=3, key_norm=key_norm, norm="rms")
    x, context = (torch.randn(2, *shape, requires_grad=True) for shape in ((8, 5), (8, 3)))
    if layer is LambdaMixer:
        x, context = x.transpose(1, 2), context.transpose(1, 2)
    nothing = context[:, :0] if layer is LambdaMixer else context[..., :0]
    y = module(x, nothing)
    assert torch.equal(y, torch.zeros_like(x))
    assert all(g.isfinite().all() for g in torch.autograd.grad(y.sum(), [x, context, *module.parameters()]))


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("shape", [(1, 1, 11), (3, 11, 11)], ids=["rows", "pairs"])
@pytest.mark.parametrize("key_norm", ["softmax", "l2", "none"])
@pytest.mark.parametrize("causal", [False, True, "strict"])
@pytest.mark.parametrize("layer", [LambdaLayer1d, LambdaMixer])
def test_a_fully_masked_context_gives_zeros(layer, causal, key_norm, shape, training):
    module = layer(11, 12, k=3, key_norm=key_norm, causal=causal).train(training)
    randomise(module)
    before = {name: t.clone() for name, t in module.named_buffers()}
    x = torch.randn(3, 11, 11, requires_grad=True)
    y = module(x, mask=torch.zeros(shape, dtype=torch.bool))
    assert (y == 0).all()
    assert all(g.isfinite().all() for g in torch.autograd.grad(y.sum(), [x, *module.parameters()]))
    for name, value in before.items():
        assert torch.equal(dict(module.named_buffers())[name], value)


@pytest.mark.parametrize("key_norm", ["softmax", "l2", "none"])
def test_a_single_masked_query_gives_zeros(key_norm):
    module = LambdaMixer(8, k=3, key_norm=key_norm)
    x = torch.randn(2, 9, 8, requires_grad=True)
    mask = torch.ones(9, 9, dtype=torch.bool)
    mask[4] = False
    y = module(x, mask=mask)
    assert (y[:, 4] == 0).all()
    assert (y[:, 5] != 0).any()
    assert all(g.isfinite().all() for g in torch.autograd.grad(y.sum(), [x, *module.parameters()]))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 31, 32, 33, 97])
@pytest.mark.parametrize("causal", [False, True, "strict"])
def test_any_length(n, causal):
    module = LambdaMixer(8, k=3, causal=causal, scope=7).eval()
    randomise(module)
    x = torch.randn(2, n, 8, requires_grad=True)
    y = module(x)
    assert y.shape == (2, n, 8)
    assert y.isfinite().all()
    assert torch.autograd.grad(y.sum(), x)[0].isfinite().all()
    if causal == "strict" and n:
        assert (y[:, 0] == 0).all()


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (7, 1), (0, 3)])
@pytest.mark.parametrize("scope", [{"scope": 23}, {"scope": None, "size": (7, 7)}], ids=["local", "global"])
def test_the_smallest_maps(size, scope):
    module = LambdaLayer2d(8, k=3, **scope)
    x = torch.randn(2, 8, *size, requires_grad=True)
    y = module(x)
    y.sum().backward()
    assert y.shape == x.shape
    assert x.grad.isfinite().all()
    assert LambdaLayer3d(8, scope=3)(torch.randn(2, 8, 1, *size)).shape == (2, 8, 1, *size)


def test_one_value_per_channel_raises_in_training_and_names_the_layer():
    module = LambdaLayer2d(8)
    with pytest.raises(ValueError, match=r"LambdaLayer2d.*more than one value per channel.*b=1"):
        module(torch.randn(1, 8, 1, 1))
    one = torch.zeros(1, 1, 6, dtype=torch.bool)
    one[..., 2] = True
    with pytest.raises(ValueError, match=r"LambdaMixer.*more than one value.*1 of them usable"):
        LambdaMixer(8)(torch.randn(1, 6, 8), mask=one)
    assert module.eval()(torch.randn(1, 8, 1, 1)).isfinite().all()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_the_last_token_of_a_strictly_causal_layer_is_no_context(bad):
    """No query may use it; others' outputs and every gradient are those of any other number there."""
    module = LambdaMixer(8, k=3, causal="strict")
    x = torch.randn(2, 9, 8)
    spoilt = x.clone()
    spoilt[:, -1] = bad
    weights = list(module.parameters())
    clean, ours = (module(t)[:, :-1] for t in (x, spoilt))
    assert torch.equal(ours, clean)
    for a, b in zip(*(torch.autograd.grad(y.square().sum(), weights) for y in (ours, clean)), strict=True):
        assert torch.equal(a, b)


def test_replaced_norms_are_called_as_they_are():
    module = LambdaMixer(8, k=3)
    module.query_norm, module.value_norm = torch.nn.LayerNorm(12), torch.nn.BatchNorm1d(2, affine=False)
    assert module(torch.randn(2, 9, 8), mask=torch.rand(2, 1, 9) < 0.9).isfinite().all()
    assert module(torch.randn(0, 9, 8)).shape == (0, 9, 8)


def test_sync_batch_norm_works_but_not_with_a_mask():
    module = torch.nn.SyncBatchNorm.convert_sync_batchnorm(LambdaMixer(8)).eval()
    assert isinstance(module.query_norm, torch.nn.SyncBatchNorm)
    assert module(torch.randn(2, 9, 8)).isfinite().all()
    with pytest.raises(ValueError, match="LambdaMixer: SyncBatchNorm cannot leave rows out"):
        module.train()(torch.randn(2, 9, 8), mask=torch.ones(9, dtype=torch.bool))
