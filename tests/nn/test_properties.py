"""Statements that hold for every lambda layer, tried on 200 random ones each."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lambdanets import LambdaLayer1d, LambdaLayer2d, LambdaLayer3d, LambdaMixer
from lambdanets.ops import Grid, apply_lambda, content_term, position_lambda, position_term, reference

LAYERS = {1: LambdaLayer1d, 2: LambdaLayer2d, 3: LambdaLayer3d}
small = st.integers(1, 4)
seeds = st.integers(0, 2**16)
key_norms = st.sampled_from(["softmax", "l2", "none"])
properties = settings(max_examples=200)


def randn(*shape):
    return torch.randn(shape, dtype=torch.float64)


@properties
@given(small, st.integers(1, 9), st.integers(1, 13), small, small, small, small, key_norms, seeds)
def test_content_term_does_not_see_the_order_of_the_context(b, n, m, h, k, v, u, key_norm, seed):
    torch.manual_seed(seed)
    q, keys, values, order = randn(b, n, h, k), randn(b, m, k, u), randn(b, m, v, u), torch.randperm(m)
    y = content_term(q, keys, values, key_norm=key_norm)
    assert torch.allclose(content_term(q, keys[:, order], values[:, order], key_norm=key_norm), y, atol=1e-10)


@properties
@given(st.integers(1, 3), st.data(), seeds)
def test_position_term_moves_with_the_map(dims, data, seed):
    """A picture and its queries at one place of an empty canvas and at another."""
    sizes = st.tuples(*[st.integers(1, 5 if dims < 3 else 3)] * dims)
    picture, shift = data.draw(sizes, label="picture"), data.draw(sizes, label="shift")
    reach = data.draw(st.tuples(*[st.integers(0, 2)] * dims), label="reach")
    canvas = tuple(p + s for p, s in zip(picture, shift, strict=True))
    scope = tuple(2 * r + 1 for r in reach)
    grid = Grid(canvas, canvas, scope, (1,) * dims, (1,) * dims)
    torch.manual_seed(seed)
    q, values, table = randn(2, *picture, 2, 3), randn(2, *picture, 5, 2), randn(grid.rows, 3, 2)

    def placed_at(origin, tensor):
        out = torch.zeros(2, *canvas, *tensor.shape[-2:], dtype=tensor.dtype)
        out[window(origin)] = tensor
        return out.flatten(1, dims)

    def window(origin):
        return (slice(None), *(slice(o, o + p) for o, p in zip(origin, picture, strict=True)))

    def output_at(origin):
        y = position_term(placed_at(origin, q), placed_at(origin, values), table, grid)
        return y.unflatten(1, canvas)[window(origin)]

    assert torch.allclose(output_at(shift), output_at((0,) * dims), atol=1e-10)


@properties
@given(st.integers(1, 3), st.data(), seeds)
def test_a_full_window_is_global(dims, data, seed):
    longest = {1: 11, 2: 5, 3: 3}[dims]
    sizes = st.tuples(*[st.integers(1, longest)] * dims)
    size, stride = data.draw(sizes, label="size"), data.draw(st.integers(1, 2), label="stride")
    torch.manual_seed(seed)
    shared = {"d_in": 3, "d_out": 4, "k": 2, "h": 2, "u": 2, "norm": "rms", "stride": stride}
    whole = LAYERS[dims](scope=None, size=size, **shared).double()
    margin = data.draw(st.integers(0, 2), label="margin")
    local = LAYERS[dims](scope=tuple(2 * (s + margin) - 1 for s in size), **shared).double()
    state = whole.state_dict()
    # The window may be larger than the map: the global table is its middle, and what stands around is never read.
    window = torch.full((*local.table.scope, 2, 2), 1e3, dtype=torch.float64)
    middle = tuple(slice(margin, margin + 2 * s - 1) for s in size)
    window[middle] = state["table.weight"].reshape(*whole.table.scope, 2, 2)
    state["table.weight"] = window.flatten(0, dims - 1)
    local.load_state_dict(state)
    x = randn(2, 3, *size)
    assert torch.allclose(whole(x), local(x), atol=1e-10)


@properties
@given(small, st.integers(1, 7), small, small, small, small, seeds)
def test_multiquery_is_a_matrix_of_equal_blocks(b, n, h, k, v, u, seed):
    """All queries of a position at once: diag(lambda, ..., lambda), h times, applied to the concatenated queries."""
    torch.manual_seed(seed)
    q, values = randn(b, n, h, k), randn(b, n, v, u)
    grid = Grid((n,), (n,), (5,), (1,), (1,))
    table = randn(5, k, u)
    y = position_term(q, values, table, grid)
    lambdas = position_lambda(values, table, grid, torch.arange(n))
    assert torch.allclose(apply_lambda(q, lambdas), y, atol=1e-10)
    for example in range(b):
        for position in range(n):
            blocks = torch.block_diag(*[lambdas[example, position]] * h)
            expected = q[example, position].flatten() @ blocks
            assert torch.allclose(y[example, position].flatten(), expected, atol=1e-10)


@properties
@given(st.integers(1, 3), st.data(), st.sampled_from([True, "strict"]), key_norms, seeds)
def test_a_causal_layer_does_not_see_the_future(dims, data, causal, key_norm, seed):
    """Changing what comes later, all of it or one token, changes nothing, and its gradient is exactly zero."""
    size = data.draw(st.tuples(*[st.integers(1, {1: 70, 2: 7, 3: 4}[dims])] * dims), label="size")
    terms = data.draw(st.sampled_from(["both", "content", "position"]), label="terms")
    norm = data.draw(st.sampled_from(["auto", "none"]), label="norm")
    layer = LambdaMixer if dims == 1 and data.draw(st.booleans(), label="tokens") else LAYERS[dims]
    torch.manual_seed(seed)
    n = torch.Size(size).numel()
    related = terms != "content" and data.draw(st.booleans(), label="related")
    geometry = {"relations": 5} if related else {"scope": 5, "dilation": data.draw(st.integers(1, 2), label="dilation")}
    module = layer(4, k=2, h=2, u=2, causal=causal, key_norm=key_norm, terms=terms, norm=norm, **geometry)
    shape = data.draw(st.sampled_from([None, (2, 1, n), (n, n)]), label="mask")
    options = {"mask": None if shape is None else torch.rand(shape) < 0.8}
    if related:
        options["relation"] = torch.randint(5, (n, n))
    t = data.draw(st.integers(0, n - 1), label="t")
    last = data.draw(st.integers(t + 1, n), label="last changed")
    scale = data.draw(st.sampled_from([1.0, 100.0, 1e15]), label="scale")

    def up_to_t(flat):
        x = flat if layer is LambdaMixer else flat.transpose(1, 2).reshape(2, 4, *size)
        y = module(x, **options)
        return (y if layer is LambdaMixer else y.flatten(2).transpose(1, 2))[:, : t + 1]

    x = torch.randn(2, n, 4, requires_grad=True)
    y = up_to_t(x)
    changed = x.detach().clone()
    changed[:, t + 1 : last + 1] = scale * torch.randn(2, len(range(n)[t + 1 : last + 1]), 4)
    assert (up_to_t(changed) - y).abs().max() <= 1e-6
    gradient = torch.autograd.grad(y.square().sum(), x)[0]
    assert (gradient[:, t + 1 :] == 0).all()


@properties
@given(
    st.integers(1, 6),
    st.integers(1, 8),
    st.sampled_from(["content", "both"]),
    key_norms,
    st.booleans(),
    seeds,
)
def test_every_allowed_element_is_used_and_no_other(n, m, terms, key_norm, causal, seed):
    """Row m of the context has a gradient from query n exactly if n may use m."""
    torch.manual_seed(seed)
    module = LambdaMixer(3, 8, k=3, h=2, terms=terms, key_norm=key_norm, norm="none", scope=5, causal=causal).double()
    mask = torch.rand(2, n, m) < 0.6
    x, context = randn(2, n, 3), randn(2, m, 3).requires_grad_()
    y = module(x, context, mask=mask)
    allowed = mask & torch.ones(n, m, dtype=torch.bool).tril() if causal else mask
    for query in range(n):
        gradient = torch.autograd.grad(y[:, query].square().sum(), context, retain_graph=True)[0]
        assert torch.equal(gradient.abs().amax(-1) > 0, allowed[:, query])


@properties
@given(st.integers(1, 3), st.data(), seeds)
def test_a_position_term_uses_exactly_its_window(dims, data, seed):
    """Local, dilated, strided, global or causal: context m has a gradient from query n exactly if r(n, m) exists."""
    size = data.draw(st.tuples(*[st.integers(1, {1: 9, 2: 4, 3: 3}[dims])] * dims), label="size")
    stride = data.draw(st.integers(1, 2), label="stride")
    causal = data.draw(st.sampled_from([False, True, "strict"]), label="causal")
    local = {"scope": data.draw(st.sampled_from([1, 3, 5])), "dilation": data.draw(st.integers(1, 2))}
    geometry = data.draw(st.sampled_from([local, {"scope": None, "size": size}]), label="geometry")
    torch.manual_seed(seed)
    shared = {"k": 3, "h": 2, "norm": "none", "terms": "position", "stride": stride, "causal": causal}
    module = LAYERS[dims](3, 4, **shared, **geometry).double()
    context = randn(2, 3, *size).requires_grad_()
    y = module(randn(2, 3, *size), context).flatten(2)

    steps = (stride,) * dims
    queries = tuple(len(range(0, s, stride)) for s in size)
    scope = tuple(2 * s - 1 for s in size) if geometry["scope"] is None else (geometry["scope"],) * dims
    seen = reference.grid_index(size, queries, scope, steps, (geometry.get("dilation", 1),) * dims) >= 0
    if causal:
        seen &= reference.past(size, queries, steps, causal == "strict")
    for query in range(y.shape[2]):
        gradient = torch.autograd.grad(y[:, :, query].square().sum(), context, retain_graph=True)[0]
        used = gradient.abs().amax(1).flatten(1) > 0
        assert torch.equal(used, seen[query].expand_as(used))
