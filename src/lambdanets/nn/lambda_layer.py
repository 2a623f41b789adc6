"""What all lambda layers share: the projections, norms and tables around the two terms.

    Q = norm(X W_Q)   (b, n, h, k)        K = C W_K   (b, m, k, u)        V = norm(C W_V)   (b, m, v, u)
    Y = Q lc + Q lp   (b, n, h, v)        reshaped to d_out = h v

X are the queries' positions, C the context: X itself unless another is given. See `lambdanets.ops` for the two terms.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lambdanets.compat import sizes_of
from lambdanets.kernels import unsupported
from lambdanets.nn.arguments import per_axis, positive, window
from lambdanets.nn.context_layer import ContextLayer
from lambdanets.nn.explain import Explanation, explain_position_term
from lambdanets.nn.fused import LayerCall, choose_for, fused_layer
from lambdanets.nn.intermediates import LambdaIntermediates, gather_intermediates
from lambdanets.nn.lambda_inputs import LayerInputs, TermInputs
from lambdanets.nn.lambda_options import LambdaOptions, Size, Terms, check_options
from lambdanets.nn.layout import strided
from lambdanets.nn.norms import Norm, frozen_statistics, fused_norms, make_norm, normalise
from lambdanets.nn.projections import Part, Projection, can_be_joined, part, project_jointly
from lambdanets.nn.receptive_field import receptive_field
from lambdanets.nn.saved_geometry import SavedGeometry, SavesGeometry
from lambdanets.nn.tables import RelationTable, RelativeTable, make_table, shared_table
from lambdanets.ops.content import content_term
from lambdanets.ops.geometry import Causal, Grid
from lambdanets.ops.keys import KeyNorm
from lambdanets.ops.masks import drop_nonfinite, drop_unusable
from lambdanets.ops.plans import PLANS, Plan
from lambdanets.ops.position import position_bias_term, position_term
from lambdanets.ops.precision import is_autocast, widen
from lambdanets.ops.terms import lambda_terms


class LambdaLayer(SavesGeometry, ContextLayer):
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
        if not hasattr(self, "dims"):
            raise TypeError("LambdaLayer is what LambdaLayer1d, 2d, 3d and LambdaMixer share; use one of those")
        super().__init__(d_in, d_out, d_context)
        owner = type(self).__name__
        check_options(
            owner,
            d_out=self.d_out,
            k=k,
            h=h,
            u=u,
            terms=terms,
            key_norm=key_norm,
            norm=norm,
            causal=causal,
            relations=relations,
            table=table,
            position_bias=position_bias,
            table_std=table_std,
            plan=plan,
        )
        self.k, self.h, self.u, self.v = k, h, u, self.d_out // h
        self.stride = per_axis(owner, self.dims, stride=stride)
        self.dilation = per_axis(owner, self.dims, dilation=dilation)
        self.terms, self.key_norm, self.causal, self.relations, self.plan = terms, key_norm, causal, relations, plan
        self.norm: Norm = norm if norm != "auto" else "rms" if causal else "batch"

        self.query = Projection(d_in, h * k)
        self.key = None if terms == "position" else Projection(self.d_context, k * u)
        self.value = Projection(self.d_context, self.v * u)
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

    @property
    def options(self) -> LambdaOptions:
        """What the layer does now: options may be changed after construction, and tables resized."""
        table = self.table
        scope, size = (table.scope, table.size) if isinstance(table, RelativeTable) else (None, None)
        widths = (self.d_in, self.d_out, self.d_context, self.k, self.h, self.u)
        rules = (self.terms, self.key_norm, self.norm, self.causal, self.relations)
        has_bias = self.position_bias is not None
        return LambdaOptions(*widths, scope, size, self.stride, self.dilation, *rules, has_bias, self.plan)

    def reset_parameters(self) -> None:
        """Start the parameters that are this layer's own; projections, norms and table start theirs."""
        if self.position_bias is not None:
            nn.init.zeros_(self.position_bias)

    def saved_geometry(self) -> SavedGeometry:
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
        queries, source = self._queries_and_source(x, context)
        y, plan = self._fused(queries, context, mask, relation)
        if y is None:
            y = self._apart(self._inputs(queries, source, context, mask, relation), plan)
        return self._layout(y, like=x)

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
            output = self.forward(x, context, mask=mask, relation=relation)
            p = self._project(self._inputs(*self._queries_and_source(x, context), context, mask, relation))
        return gather_intermediates(
            p,
            at,
            key_norm=self.key_norm,
            table=None if self.table is None else self.table.weight,
            position_bias=self.position_bias,
            content_output=self._content(p),
            position_output=self._position(p),
            output=output,
        )

    def explain(self, size: Size, *, b: int = 1, training: bool = False, patience: float = 5.0) -> Explanation:
        """What every plan for the position term costs on `b` maps of `size`, and which is taken.

        Those predicted to take less than `patience` seconds are measured, best of 3.

        >>> from lambdanets import LambdaLayer3d
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
        sizes = (self.h, self.k, self.v, self.u)
        return explain_position_term(grid, b, *sizes, plan=self.plan, training=training, patience=patience)

    def _content(self, p: TermInputs) -> Float[Tensor, "b n h v"] | None:
        if p.keys is None:
            return None
        mask, causal = p.field.allowed.mask, p.field.grid.causal
        return content_term(p.q, p.keys, p.values, key_norm=self.key_norm, mask=mask, causal=causal)

    def _position(self, p: TermInputs) -> Float[Tensor, "b n h v"] | None:
        if self.table is None:
            return None
        mask, table = p.field.allowed.mask, self.table.weight
        y = position_term(p.q, p.values, table, p.field.geometry, mask=mask, plan=self.plan)
        return y if self.position_bias is None else y + position_bias_term(p.q, self.position_bias)

    def _fused(
        self,
        x: Float[Tensor, "b *grid d"],
        context: Tensor | None,
        mask: Tensor | None,
        relation: Tensor | None,
    ) -> tuple[Float[Tensor, "b *grid o"] | None, Plan | None]:
        """The output in one operator; None if that does not compute all of it, and the plan if one was chosen."""
        parts, table, device, dtype = self._parts(), self.table, x.device, x.dtype
        if len(parts) < 3 or not isinstance(table, RelativeTable) or is_autocast(device):
            return None, None
        weight, (b, *grid) = table.weight, sizes_of(x)[:-1]
        trains = torch.is_grad_enabled() and any(t.requires_grad for t in (x, weight, *(p.weight for p, _ in parts)))
        given = (context is not None, mask is not None, relation is not None)
        options, no_kernels = self.options, unsupported(device, dtype)
        choice = choose_for(LayerCall(options, *given, b, tuple(grid), trains, device, dtype, no_kernels))
        if choice.plan is None or weight.dtype != dtype or not can_be_joined(parts):
            return None, None
        norms = fused_norms([norm for _, norm in parts if norm is not None], dtype)
        if norms is None or choice.window is None:
            return None, None if norms is None else choice.plan
        owner, tokens = type(self).__name__, x.flatten(1, -2).contiguous()
        table.check_covers(owner, tuple(grid), tuple(grid), self.stride)
        y = fused_layer(tokens, parts, weight, self.position_bias, options, choice, norms, owner)
        return y.reshape(b, *grid, self.d_out), choice.plan

    def _apart(self, inputs: LayerInputs, plan: Plan | None) -> Float[Tensor, "b *grid o"]:
        """The output in one step for each projection, norm and term."""
        p = self._project(inputs)
        y = lambda_terms(
            p.q,
            p.keys,
            p.values,
            None if self.table is None else self.table.weight,
            p.field.geometry,
            key_norm=self.key_norm,
            position_bias=self.position_bias,
            mask=p.field.allowed.mask,
            plan=self.plan if plan is None else plan,
        )
        output: Tensor = y.to(p.dtype).flatten(2).unflatten(1, p.field.grid.queries)
        return output

    def _inputs(
        self,
        queries: Float[Tensor, "b *grid d"],
        source: Float[Tensor, "b *other e"],
        context: Float[Tensor, "b ..."] | None,
        mask: Bool[Tensor, "..."] | None,
        relation: Int[Tensor, "... n m"] | None,
    ) -> LayerInputs:
        tokens = source.flatten(1, -2).contiguous()  # once, not again in each projection
        queries = strided(self.stride, queries)
        b, *size = sizes_of(queries)[:-1]  # len(x) would fix the batch of an exported layer
        grid = self._grid(sizes_of(source)[1:-1], tuple(size))
        self._check_relation(relation)
        field = receptive_field(grid, b, mask, relation, has_content=self.key is not None, device=queries.device)
        asking = tokens if context is None and max(self.stride) == 1 else queries.flatten(1, -2)
        counted = None
        if context is None and field.usable is not None:
            # A row that no query may use stays out of the statistics of the queries too.
            counted = strided(self.stride, field.usable.unflatten(1, grid.context)).flatten(1)
            asking = drop_nonfinite(asking, counted)
        return LayerInputs(asking, drop_unusable(tokens, field.usable), counted, field)

    def _parts(self) -> list[Part]:
        """The projections with their norms, those with a norm first."""
        parts: list[Part] = [(self.query, self.query_norm), (self.value, self.value_norm)]
        key = self.key
        return parts if key is None else [*parts, (key, None)]

    def _project(self, inputs: LayerInputs) -> TermInputs:
        owner, parts = type(self).__name__, self._parts()
        norms: list[nn.Module | None]
        if inputs.asking is inputs.tokens and can_be_joined(parts):
            # A plan that was asked for and consists of torch's operators wants nothing else in the layer either.
            kernels = self.plan is None or not PLANS[self.plan].is_portable
            (q, values, *keys), norms = part(project_jointly(inputs.tokens, parts), owner, kernels=kernels)
        else:
            q, values, norms = self.query(inputs.asking), self.value(inputs.tokens), [self.query_norm, self.value_norm]
            keys = [] if self.key is None else [self.key(inputs.tokens)]
        return TermInputs(
            widen(normalise(norms[0], q, inputs.counted, owner)).unflatten(-1, (self.h, self.k)),
            widen(keys[0]).unflatten(-1, (self.k, self.u)) if keys else None,
            widen(normalise(norms[1], values, inputs.field.usable, owner)).unflatten(-1, (self.v, self.u)),
            inputs.field,
            q.dtype,
        )

    def _grid(self, context: tuple[int, ...], queries: tuple[int, ...]) -> Grid:
        """Where queries and context stand, once the table is known to cover it."""
        table, scope = self.table, (1,) * self.dims
        if isinstance(table, RelativeTable):
            table.check_covers(type(self).__name__, context, queries, self.stride)
            scope = table.scope
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
