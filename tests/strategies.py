"""Hypothesis strategies: any lambda layer with inputs that fit it, and what the oracle needs to know of it."""

import math
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

from compare import randomise
from lambdanets import LambdaLayer1d, LambdaLayer2d, LambdaLayer3d, LambdaMixer
from lambdanets.ops import Grid, reference

LAYERS = {1: LambdaLayer1d, 2: LambdaLayer2d, 3: LambdaLayer3d}
LONGEST = {1: 40, 2: 6, 3: 3}


@dataclass
class Case:
    """A layer's class and arguments, its inputs, and the oracle's view of them."""

    layer: type
    arguments: dict
    oracle: dict
    x: Tensor
    context: Tensor | None
    mask: Tensor | None
    relation: Tensor | None
    training: bool
    seed: int

    @property
    def tokens(self) -> bool:
        return self.layer is LambdaMixer

    def allowed(self) -> Tensor:
        """What mask and causality permit, as (b, n, m)."""
        size, seen = self._grids()
        stride, causal = self.oracle["stride"], self.oracle["causal"]
        queries = [len(range(0, n, s)) for n, s in zip(size, stride, strict=True)]
        shape = (len(self.x), math.prod(queries), math.prod(seen))
        allowed = torch.ones(shape, dtype=torch.bool) if self.mask is None else self.mask.expand(shape)
        return allowed & reference.past(seen, queries, stride, causal == "strict") if causal else allowed

    def can_train(self) -> bool:
        """Batch statistics of fewer than 8 values say little, and those of one do not exist."""
        if self.oracle["norm"] != "batch":
            return True
        usable = self.allowed().any(1)
        size, _ = self._grids()
        queries = torch.ones(len(self.x), *size, dtype=torch.bool)
        if self.context is None:
            queries = usable.reshape(len(self.x), *size)
        queries = queries[(slice(None), *(slice(None, None, s) for s in self.oracle["stride"]))]
        return min(int(usable.sum()), int(queries.sum())) >= 8

    def _grids(self):
        seen = self.x if self.context is None else self.context
        return [t.shape[1:-1] if self.tokens else t.shape[2:] for t in (self.x, seen)]

    def build(self, dtype: torch.dtype):
        layer = self.layer(**self.arguments).to(dtype)
        randomise(layer, self.seed)
        return layer.train(self.training and self.can_train())


@st.composite
def lambda_cases(draw, causal=None, masked=None) -> Case:
    dims = draw(st.integers(1, 3), label="dims")
    tokens = dims == 1 and draw(st.booleans(), label="tokens")
    # Small enough for edges to matter, or long enough for several chunks of running sums.
    sizes = st.one_of([st.tuples(*[st.integers(1, most)] * dims) for most in (3, LONGEST[dims])])
    steps = st.one_of(st.just((1,) * dims), st.tuples(*[st.integers(1, 3)] * dims))
    size, stride = draw(sizes, label="size"), draw(steps, label="stride")
    context_size = draw(st.none() | sizes, label="context size")
    queries = tuple(len(range(0, n, s)) for n, s in zip(size, stride, strict=True))
    seen = size if context_size is None else context_size
    b, n, m = draw(st.integers(1, 5), label="b"), math.prod(queries), math.prod(seen)

    causal = draw(st.sampled_from([False, False, True, "strict"]), label="causal") if causal is None else causal
    norm = draw(st.sampled_from(["auto", "rms", "none"] + ([] if causal else ["batch"])), label="norm")
    kind = norm if norm != "auto" else "rms" if causal else "batch"
    # A norm of a single channel, or of what one number was projected to, forgets all but a sign: the gradient is a
    # cancellation to zero that no float32 evaluation survives.
    least = 2 if kind == "rms" else 1
    key_norm = draw(st.sampled_from(["softmax", "softmax", "l2", "none"]), label="key_norm")
    narrowest = 1 if kind == "none" and key_norm != "l2" else 2
    k, h, u = draw(st.integers(least, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    d_in, v = draw(st.integers(narrowest, 5)), draw(st.integers(least, 5))
    d_context = d_in if context_size is None else draw(st.integers(narrowest, 5))
    terms = draw(st.sampled_from(["both", "both", "content", "position"]), label="terms")
    arguments = {
        "d_in": d_in,
        "d_out": h * v,
        "d_context": d_context,
        "k": k,
        "h": h,
        "u": u,
        "stride": stride,
    }
    arguments |= {"terms": terms, "key_norm": key_norm, "norm": norm, "causal": causal}
    oracle = {"k": k, "h": h, "u": u, "stride": stride, "terms": terms, "key_norm": key_norm, "norm": kind}
    oracle |= {"causal": causal, "dilation": (1,) * dims, "scope": None}

    relation = None
    seed = draw(st.integers(0, 2**16), label="seed")
    generator = torch.Generator().manual_seed(seed)
    if terms != "content":
        geometry = draw(st.sampled_from(["local", "local", "clipped", "global", "relation"]), label="geometry")
        arguments["position_bias"] = draw(st.booleans(), label="position bias")
        extent = tuple(max(a, s * (q - 1) + 1) for a, s, q in zip(seen, stride, queries, strict=True))
        if geometry == "relation":
            arguments["relations"] = p = draw(st.integers(1, 7))
            shape = (b, n, m) if draw(st.booleans(), label="relation per example") else (n, m)
            relation = torch.randint(p, shape, generator=generator)
        elif geometry == "global":
            room = draw(st.tuples(*[st.integers(0, 2)] * dims), label="room")
            table = tuple(e + r for e, r in zip(extent, room, strict=True))
            arguments |= {"scope": None, "size": table}
            oracle["scope"] = tuple(2 * t - 1 for t in table)
        else:
            scope = tuple(2 * r + 1 for r in draw(st.tuples(*[st.integers(0, 4)] * dims), label="reach"))
            arguments |= {"scope": scope, "dilation": draw(steps, label="dilation")}
            if geometry == "clipped":
                arguments["size"] = draw(sizes, label="table size")
                scope = tuple(min(r, 2 * t - 1) for r, t in zip(scope, arguments["size"], strict=True))
            oracle |= {"scope": scope, "dilation": arguments["dilation"]}

    masked = draw(st.booleans(), label="masked") if masked is None else masked
    shapes = [(m,), (b, 1, m), (n, m), (b, n, m), (n, 1), (b, n, 1)]
    shape = draw(st.sampled_from(shapes), label="mask shape") if masked else None
    mask = None if shape is None else torch.rand(shape, generator=generator) < 0.7

    def inputs(d, grid):
        shape = (b, *grid, d) if tokens else (b, d, *grid)
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    return Case(
        layer=LambdaMixer if tokens else LAYERS[dims],
        arguments=arguments,
        oracle=oracle,
        x=inputs(d_in, size),
        context=None if context_size is None else inputs(d_context, context_size),
        mask=mask,
        relation=relation,
        training=draw(st.booleans(), label="training"),
        seed=seed,
    )


@st.composite
def grids(draw) -> Grid:
    """Queries and context on grids of unrelated sizes, with any window."""
    dims = draw(st.integers(1, 3))

    def axes(low, high):
        return draw(st.tuples(*[st.integers(low, high)] * dims))

    longest = {1: 9, 2: 5, 3: 3}[dims]
    scope = tuple(2 * r + 1 for r in axes(0, 3))
    causal = draw(st.sampled_from([False, True, "strict"]))
    return Grid(axes(1, longest), axes(1, longest), scope, axes(1, 3), axes(1, 3), causal)
