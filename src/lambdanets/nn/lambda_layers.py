"""Lambda layers on maps and on tokens: the projections, norms and tables around the two terms.

    Q = norm(X W_Q)   (b, n, h, k)        K = C W_K   (b, m, k, u)        V = norm(C W_V)   (b, m, v, u)
    Y = Q lc + Q lp   (b, n, h, v)        reshaped to d_out = h v

X are the queries' positions, C the context: X itself unless another is given. See `lambdanets.ops` for the two terms.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import ClassVar, Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lambdanets.compat import sizes_of
from lambdanets.nn.arguments import one_of, per_axis, positive, window
from lambdanets.nn.explain import Explanation, explain_position_term
from lambdanets.nn.fused import fused_layer, reads_norms
from lambdanets.nn.intermediates import LambdaIntermediates, gather_intermediates
from lambdanets.nn.layout import OnMaps, OnTokens, strided
from lambdanets.nn.norms import Norm, frozen_statistics, make_norm, normalise
from lambdanets.nn.projections import Joint, Part, Projection, can_be_joined, part, project_jointly
from lambdanets.nn.receptive_field import ReceptiveField, receptive_field
from lambdanets.nn.saved_geometry import Geometry, SavesGeometry
from lambdanets.nn.tables import RelationTable, RelativeTable, make_table, shared_table
from lambdanets.ops.content import content_term
from lambdanets.ops.geometry import Causal, Grid
from lambdanets.ops.keys import KeyNorm
from lambdanets.ops.masks import drop_unusable
from lambdanets.ops.plans import PLANS
from lambdanets.ops.plans.native import may_be_native
from lambdanets.ops.position import position_bias_term, position_term
from lambdanets.ops.precision import widen
from lambdanets.ops.terms import lambda_terms

Size = int | Sequence[int]
Terms = Literal["both", "content", "position"]


class _Seen(NamedTuple):
    """The rows of channels that queries, keys and values come from, and who may look where."""

    asking: Float[Tensor, "b n d"]
    tokens: Float[Tensor, "b m e"]  # the same tensor, if every position asks and is looked at
    counted: Bool[Tensor, "#b n"] | None  # the queries that count in batch statistics, None for all
    scene: ReceptiveField


class _Projected(NamedTuple):
    """The inputs of the two terms, in full precision."""

    q: Float[Tensor, "b n h k"]
    keys: Float[Tensor, "b m k u"] | None
    values: Float[Tensor, "b m v u"]
    scene: ReceptiveField
    dtype: torch.dtype  # of the projections, and so of the output


class LambdaLayer(SavesGeometry, OnMaps):
    """What all lambda layers share; use the subclass for your input, `LambdaLayer1d`, `2d`, `3d` or `LambdaMixer`.

    Args:
        d_in: channels of the input.
        d_out: channels of the output, h times the value depth v; `d_in` by default.
        d_context: channels of the context; `d_in` by default.
        k: depth of queries and keys.
        h: queries per position that share one lambda ("heads").
        u: intra-depth.
        scope: side of the odd window of the position lambdas; None is global and needs `size`.
        size: the largest map of a global layer; beside a scope it cuts the window to 2 size - 1.
        stride: outputs at positions 0, s, 2s, ... of the input.
        dilation: spacing of the window.
        terms: "both", "content" or "position".
        key_norm: how keys are normalised over the context: "softmax", "l2" or "none".
        norm: of queries and values: "batch", "rms" (over the channels of a position) or "none";
            "auto" is "batch", or "rms" in a causal layer.
        causal: a position uses what comes up to itself in raster order, or before it if "strict".
        relations: so many kinds of pair, which forward takes as `relation`, instead of grid offsets.
        table: the table of another layer of the same geometry, to share it.
        position_bias: a learned vector of k numbers added to every position lambda.
        table_std: standard deviation that the table starts from; the paper's 1 suits layers with batch norm.
        plan: how to compute the position term, one of `lambdanets.ops.plans.PLANS`; the cheapest for each input by
            default, see `explain`.
    """

    dims: ClassVar[int]
    laid_out = ("query.weight", "key.weight", "value.weight")
    table: RelationTable | None
    position_bias: nn.Parameter | None

    def __init__(
        self,
        d_in: int,
        d_out: int | None = None,
        *,
        d_context: int | None = None,
        k: int = 16,
        h: int = 4,
        u: int = 1,
        scope: Size | None = 23,
        size: Size | None = None,
        stride: Size = 1,
        dilation: Size = 1,
        terms: Terms = "both",
        key_norm: KeyNorm = "softmax",
        norm: Norm | Literal["auto"] = "auto",
        causal: Causal = False,
        relations: int | None = None,
        table: RelationTable | None = None,
        position_bias: bool = False,
        table_std: float = 1.0,
        plan: str | None = None,
    ) -> None:
        super().__init__()
        owner = type(self).__name__
        if not hasattr(self, "dims"):
            raise TypeError("LambdaLayer is what LambdaLayer1d, 2d, 3d and LambdaMixer share; use one of those")
        d_out = d_in if d_out is None else d_out
        d_context = d_in if d_context is None else d_context
        positive(owner, d_in=d_in, d_out=d_out, d_context=d_context, k=k, h=h, u=u)
        if d_out % h:
            raise ValueError(f"{owner}: d_out must be divisible by h, got d_out={d_out}, h={h}")
        one_of(owner, terms=(terms, get_args(Terms)))
        one_of(owner, key_norm=(key_norm, get_args(KeyNorm)))
        one_of(owner, norm=(norm, ("auto", *get_args(Norm))))
        one_of(owner, causal=(causal, (False, True, "strict")))
        one_of(owner, position_bias=(position_bias, (False, True)))
        one_of(owner, plan=(plan, (None, *PLANS)))
        if not isinstance(table_std, (int, float)) or table_std < 0:
            raise ValueError(f"{owner}: table_std must be a number of at least 0, got table_std={table_std!r}")
        if causal and norm == "batch":
            raise ValueError(
                f'{owner}: norm="batch" mixes all positions and would show a causal layer its future, '
                f'got causal={causal!r}; use norm="rms", "none" or "auto"'
            )
        if terms == "content" and (relations, table, position_bias) != (None, None, False):
            raise ValueError(
                f"{owner}: relations, table and position_bias belong to the position term, got terms={terms!r}"
            )
        self.d_in, self.d_out, self.d_context = d_in, d_out, d_context
        self.k, self.h, self.u, self.v = k, h, u, d_out // h
        self.stride = per_axis(owner, self.dims, stride=stride)
        self.dilation = per_axis(owner, self.dims, dilation=dilation)
        self.terms, self.key_norm, self.causal, self.relations, self.plan = terms, key_norm, causal, relations, plan
        self.norm: Norm = norm if norm != "auto" else "rms" if causal else "batch"

        self.query = Projection(d_in, h * k)
        self.key = None if terms == "position" else Projection(d_context, k * u)
        self.value = Projection(d_context, self.v * u)
        self.query_norm = make_norm(self.norm, h * k)
        self.value_norm = make_norm(self.norm, self.v * u)
        scopes = window(owner, self.dims, scope)
        sizes = None if size is None else per_axis(owner, self.dims, size=size)
        self.table = None
        if terms != "content":
            # A table that only describes what to share needs no memory.
            with nullcontext() if table is None else torch.device("meta"):
                own = make_table(owner, k, u, scopes, sizes, self.dilation, relations=relations, std=table_std)
            self.table = own if table is None else shared_table(owner, table, own)
        self.register_parameter("position_bias", nn.Parameter(torch.zeros(k)) if position_bias else None)

    def reset_parameters(self) -> None:
        """Start the parameters that are this layer's own; projections, norms and table start theirs."""
        if self.position_bias is not None:
            nn.init.zeros_(self.position_bias)

    def saved_geometry(self) -> Geometry:
        return {"h": self.h, "k": self.k, "u": self.u}

    def resize(self, size: Size) -> None:
        """Fit the table to maps of `size`; layers that share the table follow.

        A table that covers whole maps is interpolated, a window smaller than the map keeps its offsets. The weight
        becomes a new parameter when its shape changes: make the optimiser afterwards.
        """
        owner = type(self).__name__
        if not isinstance(self.table, RelativeTable):
            raise ValueError(f"{owner}: only a table of grid offsets can be resized, this layer has {self.table}")
        self.table.resize(per_axis(owner, self.dims, size=size))

    def forward(
        self,
        x: Float[Tensor, "b ..."],
        context: Float[Tensor, "b ..."] | None = None,
        *,
        mask: Bool[Tensor, "..."] | None = None,
        relation: Int[Tensor, "... n m"] | None = None,
    ) -> Float[Tensor, "b ..."]:
        """Let every position of `x` read the context.

        Args:
            x: the input, and the context too unless another is given.
            context: where keys and values come from.
            mask: which context positions a query may use, True = may use, broadcastable to (b, n, m).
            relation: which row of the table stands for each pair, (n, m) or (b, n, m); needs `relations`.
        """
        seen = self._see(x, context, mask, relation)
        return self._map(self._answer(seen, self._join(seen)), seen.scene, like=x)

    def intermediates(
        self,
        x: Float[Tensor, "b ..."],
        context: Float[Tensor, "b ..."] | None = None,
        *,
        mask: Bool[Tensor, "..."] | None = None,
        relation: Int[Tensor, "... n m"] | None = None,
        at: Sequence[int] | Int[Tensor, "a"] | None = None,
    ) -> LambdaIntermediates:
        """What forward computes for the same arguments, by name; looking changes no statistics.

        Args:
            at: query positions, in raster order, whose lambdas are wanted; all of them by default.
        """
        with frozen_statistics(self):
            seen = self._see(x, context, mask, relation)
            joint = self._join(seen)
            p, output = self._project(seen, joint), self._answer(seen, joint)
        return gather_intermediates(
            p.q,
            p.keys,
            p.values,
            p.scene,
            at,
            key_norm=self.key_norm,
            table=None if self.table is None else self.table.weight,
            position_bias=self.position_bias,
            content_output=self._content(p),
            position_output=self._position(p),
            output=self._map(output, p.scene, like=x),
        )

    def explain(self, size: Size, *, b: int = 1, training: bool = False, patience: float = 5.0) -> Explanation:
        """What every plan for the position term costs on `b` maps of `size`, and which is taken.

        Those predicted to take less than `patience` seconds are measured, best of 3.

        >>> print(LambdaLayer3d(32, scope=3).explain(7, patience=0.0))  # doctest: +ELLIPSIS
        -> convolution   predicted ... ms, not measured
           fft           predicted ... ms, not measured
           lambda_first  predicted ... ms, not measured
           native        cannot: the kernels are for maps of one or two axes
           native_direct cannot: the kernels are for maps of one or two axes
           native_fft    cannot: the kernels are for maps of one or two axes
           query_first   predicted ... ms, not measured
        """
        owner = type(self).__name__
        if not isinstance(self.table, RelativeTable):
            raise ValueError(f"{owner}: only the position term on a grid has plans, this layer has {self.table}")
        context = per_axis(owner, self.dims, size=size)
        positive(owner, b=b)
        grid = self._grid(context, tuple(-(-m // s) for m, s in zip(context, self.stride, strict=True)))
        shapes = ((b, grid.n, self.h, self.k), (b, grid.m, self.v, self.u), (grid.rows, self.k, self.u))
        q, values, table = (torch.randn(shape, requires_grad=training) for shape in shapes)
        return explain_position_term(q, values, table, grid, plan=self.plan, training=training, patience=patience)

    def _content(self, p: _Projected) -> Float[Tensor, "b n h v"] | None:
        if p.keys is None:
            return None
        mask, causal = p.scene.allowed.mask, p.scene.grid.causal
        return content_term(p.q, p.keys, p.values, key_norm=self.key_norm, mask=mask, causal=causal)

    def _position(self, p: _Projected) -> Float[Tensor, "b n h v"] | None:
        if self.table is None:
            return None
        mask, table = p.scene.allowed.mask, self.table.weight
        y = position_term(p.q, p.values, table, p.scene.geometry, mask=mask, plan=self.plan)
        return y if self.position_bias is None else y + position_bias_term(p.q, self.position_bias)

    def _answer(self, seen: _Seen, joint: Joint | None) -> Float[Tensor, "b n h v"]:
        """Both terms, in one operator where that is possible."""
        if joint is not None:
            y = fused_layer(
                joint,
                None if self.table is None else self.table.weight,
                self.position_bias,
                seen.scene,
                h=self.h,
                key_norm=self.key_norm,
                plan=self.plan,
                owner=type(self).__name__,
            )
            if y is not None:
                return y
        p = self._project(seen, joint)
        y = lambda_terms(
            p.q,
            p.keys,
            p.values,
            None if self.table is None else self.table.weight,
            p.scene.geometry,
            key_norm=self.key_norm,
            position_bias=self.position_bias,
            mask=p.scene.allowed.mask,
            plan=self.plan,
        )
        return y.to(p.dtype)

    def _map(
        self, y: Float[Tensor, "b n h v"], scene: ReceptiveField, like: Float[Tensor, "b ..."]
    ) -> Float[Tensor, "b ..."]:
        return self._layout(y.flatten(2).unflatten(1, scene.grid.queries), like)

    def _see(
        self,
        x: Float[Tensor, "b ..."],
        context: Float[Tensor, "b ..."] | None,
        mask: Bool[Tensor, "..."] | None,
        relation: Int[Tensor, "... n m"] | None,
    ) -> _Seen:
        queries = self._channels_last("x", x, self.d_in)
        source = self._channels_last("context", x if context is None else context, self.d_context)
        b = sizes_of(x)[0]  # len(x) would fix the batch of an exported layer
        if source.shape[0] != b:
            raise ValueError(
                f"{type(self).__name__}: x and context must have the same batch, got b={b} and {source.shape[0]}"
            )
        tokens = source.flatten(1, -2).contiguous()  # once, not again in each projection
        queries = strided(self.stride, queries)
        grid = self._grid(sizes_of(source)[1:-1], sizes_of(queries)[1:-1])
        self._check_relation(relation)
        scene = receptive_field(grid, b, mask, relation, has_content=self.key is not None, device=x.device)
        asking = tokens if context is None and max(self.stride) == 1 else queries.flatten(1, -2)
        counted = None
        if context is None and scene.usable is not None:
            # A row that no query may use stays out of the statistics of the queries too. Its own query is still
            # answered, with zeros for whatever in it is not finite.
            counted = strided(self.stride, scene.usable.unflatten(1, grid.context)).flatten(1)
            asking = asking.masked_fill(~counted[..., None] & ~asking.isfinite(), 0.0)
        return _Seen(asking, drop_unusable(tokens, scene.usable), counted, scene)

    def _join(self, seen: _Seen) -> Joint | None:
        """All projections as one product, if they have the same input."""
        parts: list[Part] = [(self.query, self.query_norm), (self.value, self.value_norm)]
        if self.key is not None:
            parts.append((self.key, None))
        if seen.asking is not seen.tokens or not can_be_joined(parts):
            return None
        return project_jointly(seen.tokens, parts, fold=not reads_norms() or not may_be_native(self.plan))

    def _project(self, seen: _Seen, joint: Joint | None) -> _Projected:
        owner = type(self).__name__
        norms: list[nn.Module | None]
        if joint is not None:
            # Of the kernels, the plan that was asked for may want none: they have no second derivatives.
            (q, values, *keys), norms = part(joint, owner, kernels=may_be_native(self.plan))
        else:
            q, values, norms = self.query(seen.asking), self.value(seen.tokens), [self.query_norm, self.value_norm]
            keys = [] if self.key is None else [self.key(seen.tokens)]
        return _Projected(
            widen(normalise(norms[0], q, seen.counted, owner)).unflatten(-1, (self.h, self.k)),
            widen(keys[0]).unflatten(-1, (self.k, self.u)) if keys else None,
            widen(normalise(norms[1], values, seen.scene.usable, owner)).unflatten(-1, (self.v, self.u)),
            seen.scene,
            q.dtype,
        )

    def _grid(self, context: tuple[int, ...], queries: tuple[int, ...]) -> Grid:
        """Where queries and context stand, once the table is known to cover it."""
        table = self.table
        scope = table.scope if isinstance(table, RelativeTable) else (1,) * self.dims
        if isinstance(table, RelativeTable) and table.is_global:
            assert table.size is not None
            reach = zip(context, queries, self.stride, strict=True)
            extent = tuple(max(m, s * (n - 1) + 1) for m, n, s in reach)
            if any(e > s for e, s in zip(extent, table.size, strict=True)):
                raise ValueError(
                    f"{type(self).__name__}: a map of size {extent} is larger than its global table for {table.size}; "
                    f"layer.resize({extent}) or, in a network, model.resize(image_size) interpolates the table; "
                    f"a layer with a scope has no such limit"
                )
        return Grid(context, queries, scope, self.stride, self.dilation, self.causal)

    def _check_relation(self, relation: Int[Tensor, "... n m"] | None) -> None:
        if (relation is None) != (self.relations is None):
            raise ValueError(
                f"{type(self).__name__}: relation and relations go together, got relation="
                f"{None if relation is None else tuple(relation.shape)}, relations={self.relations}"
            )

    def extra_repr(self) -> str:
        return (
            f"{self.d_in}, {self.d_out}, d_context={self.d_context}, k={self.k}, h={self.h}, u={self.u}, "
            f"stride={self.stride}, dilation={self.dilation}, terms={self.terms!r}, key_norm={self.key_norm!r}, "
            f"norm={self.norm!r}, causal={self.causal!r}"
        )


class LambdaLayer1d(LambdaLayer):
    """A lambda layer on maps (b, d, n), standing where a Conv1d stands.

    >>> LambdaLayer1d(32, scope=7)(torch.randn(2, 32, 50)).shape
    torch.Size([2, 32, 50])
    """

    dims = 1


class LambdaLayer2d(LambdaLayer):
    """A lambda layer on maps (b, d, height, width), standing where a Conv2d stands.

    >>> LambdaLayer2d(32, 64, stride=2)(torch.randn(2, 32, 14, 20)).shape
    torch.Size([2, 64, 7, 10])
    >>> LambdaLayer2d(32, scope=None, size=(14, 20))(torch.randn(2, 32, 11, 20)).shape  # global
    torch.Size([2, 32, 11, 20])
    """

    dims = 2


class LambdaLayer3d(LambdaLayer):
    """A lambda layer on maps (b, d, depth, height, width), standing where a Conv3d stands.

    >>> LambdaLayer3d(16, scope=(3, 5, 5))(torch.randn(2, 16, 4, 7, 9)).shape
    torch.Size([2, 16, 4, 7, 9])
    """

    dims = 3


class LambdaMixer(OnTokens, LambdaLayer):
    """A lambda layer on tokens (b, n, d), standing where self- or cross-attention stands.

    >>> LambdaMixer(32, causal=True, scope=65)(torch.randn(2, 100, 32)).shape
    torch.Size([2, 100, 32])
    >>> cross = LambdaMixer(32, d_context=48, terms="content")
    >>> cross(torch.randn(2, 100, 32), torch.randn(2, 7, 48)).shape
    torch.Size([2, 100, 32])
    """
