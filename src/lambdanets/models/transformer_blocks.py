"""Blocks of Transformers, with any layer of the family as token mixer.

    pre-norm     x + f(norm(x)), and a final norm after the last block
    post-norm    norm(x + f(x))

f is a mixer or a per-token feed-forward network, W_2 act(W_1 x). Tokens are (b, n, d), or (b, *grid, d) with mixers
that see a grid.

A mask is True where a token may be used. The number of axes decides its meaning, whatever their sizes: a mask with two
axes is for tokens, (b, n); a mask with three is for pairs, broadcast to (b, n, m). A mask of pairs that all examples
share is (1, n, m), `mask[None]`: with two axes it would be ambiguous if there are as many examples as tokens.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal, get_args

from jaxtyping import Bool, Float
from torch import Tensor, nn

from lambdanets.models.blocks import DropPath
from lambdanets.models.mixers import Mixer, make_mixer
from lambdanets.nn.arguments import keywords, known_options, one_of, positive, rate
from lambdanets.nn.projections import Dense
from lambdanets.nn.registry import Layout, layer_class, list_layers

Activation = Literal["gelu", "relu"]
Mask = Bool[Tensor, "b _"] | Bool[Tensor, "#b _ _"]
Options = Mapping[str, Any]


def pair_mask(
    owner: str, mask: Mask | None, tokens: Float[Tensor, "b *n d"], name: str = "mask"
) -> Bool[Tensor, "_ _ _"] | None:
    """A mask of tokens as a mask of pairs, the same for every query; a mask of pairs as it is."""
    if mask is None or mask.ndim != 2:
        return mask
    wanted = (tokens.shape[0], math.prod(tokens.shape[1:-1]))
    if any(got not in (1, want) for got, want in zip(mask.shape, wanted, strict=True)):
        raise ValueError(
            f"{owner}: a {name} with two axes is for tokens, (b, n) = {wanted}, and one for pairs has three, "
            f"(b or 1, n, m), got shape {tuple(mask.shape)}"
        )
    return mask[:, None]


def reads_context(layer: nn.Module | type[nn.Module]) -> bool:
    """Whether a mixer can use another context than its own input; True unless the mixer declares otherwise."""
    return bool(getattr(layer, "reads_context", True))


class FeedForward(nn.Module):
    """W_2 act(W_1 x), for every token separately."""

    def __init__(self, d: int, hidden: int, *, activation: Activation, dropout: float, bias: bool) -> None:
        super().__init__()
        self.expand = Dense(d, hidden, bias)
        self.activation = nn.GELU() if activation == "gelu" else nn.ReLU()
        self.dropout = nn.Dropout(dropout)
        self.reduce = Dense(hidden, d, bias)

    def forward(self, x: Float[Tensor, "b *n d"]) -> Float[Tensor, "b *n d"]:
        y: Tensor = self.reduce(self.dropout(self.activation(self.expand(x))))
        return y


class Residual(nn.Module):
    """A residual connection around a norm and a layer; `forward` passes keyword arguments on to the layer."""

    def __init__(
        self, d: int, layer: nn.Module, *, norm_first: bool, dropout: float, drop_path: float, eps: float, bias: bool
    ) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.norm = nn.LayerNorm(d, eps=eps, bias=bias)
        self.layer = layer
        self.dropout = nn.Dropout(dropout)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Float[Tensor, "b *n d"], **given: Tensor | None) -> Float[Tensor, "b *n d"]:
        kwargs = {name: value for name, value in given.items() if value is not None}
        residual = self.layer(self.norm(x) if self.norm_first else x, **kwargs)
        y: Tensor = x + self.drop_path(self.dropout(residual))
        return y if self.norm_first else self.norm(y)


class Block(nn.Module):
    """Base of encoder and decoder blocks: mixers, then a feed-forward network.

    Args:
        d: channels of a token.
        hidden: channels inside the feed-forward network; 4 d by default.
        norm_first: pre-norm instead of post-norm.
        activation: of the feed-forward network, "gelu" or "relu".
        dropout: inside the feed-forward network and of every residual.
        drop_path: probability of dropping a residual, for a whole example.
        eps: of the norms.
        bias: in norms and the feed-forward network; mixers have an option of their own.
    """

    mix: Residual
    feed: Residual

    def __init__(
        self,
        d: int,
        mixers: Mapping[str, nn.Module],
        *,
        hidden: int | None = None,
        norm_first: bool = True,
        activation: Activation = "gelu",
        dropout: float = 0.0,
        drop_path: float = 0.0,
        eps: float = 1e-5,
        bias: bool = True,
    ) -> None:
        super().__init__()
        owner = type(self).__name__
        hidden = 4 * d if hidden is None else hidden
        positive(owner, d=d, hidden=hidden)
        one_of(owner, activation=(activation, get_args(Activation)))
        rate(owner, dropout=dropout, drop_path=drop_path)
        feed = FeedForward(d, hidden, activation=activation, dropout=dropout, bias=bias)
        for name, layer in {**mixers, "feed": feed}.items():
            residual = Residual(
                d, layer, norm_first=norm_first, dropout=dropout, drop_path=drop_path, eps=eps, bias=bias
            )
            self.add_module(name, residual)


class EncoderBlock(Block):
    """A mixer, then a per-token feed-forward network.

    Args:
        mixer, mixer_options, layout, defaults: see `lambdanets.models.mixers.make_mixer`.
        style: see `Block`.

    >>> EncoderBlock(32, mixer="lambda", mixer_options={"scope": 7})(torch.randn(2, 50, 32)).shape
    torch.Size([2, 50, 32])
    """

    def __init__(
        self,
        d: int,
        *,
        mixer: Mixer = "attention",
        mixer_options: Options | None = None,
        layout: Layout = "tokens",
        defaults: Options | None = None,
        **style: Any,
    ) -> None:
        known_options(type(self).__name__, style, keywords(Block))
        super().__init__(d, {"mix": make_mixer(mixer, d, mixer_options, layout=layout, defaults=defaults)}, **style)

    def forward(self, x: Float[Tensor, "b *n d"], mask: Mask | None = None) -> Float[Tensor, "b *n d"]:
        y: Tensor = self.feed(self.mix(x, mask=pair_mask(type(self).__name__, mask, x)))
        return y


class DecoderBlock(Block):
    """A mixer, a cross mixer that reads a context, then a per-token feed-forward network.

    Queries of `cross` come from the decoder, its keys and values from the context, usually the output of an encoder.

    Args:
        mixer, mixer_options: see `lambdanets.models.mixers.make_mixer`.
        cross, cross_options: of the mixer that reads the context; `mixer` and its options by default.
        causal: tokens use only tokens up to themselves: passes `causal=True` to the mixer, also to a callable.
        style: see `Block`.

    >>> DecoderBlock(32, cross="lambda", cross_options={"terms": "content"})(
    ...     torch.randn(2, 50, 32), torch.randn(2, 7, 32)).shape
    torch.Size([2, 50, 32])
    """

    cross: Residual

    def __init__(
        self,
        d: int,
        *,
        mixer: Mixer = "attention",
        mixer_options: Options | None = None,
        cross: Mixer | None = None,
        cross_options: Options | None = None,
        causal: bool = True,
        **style: Any,
    ) -> None:
        known_options(type(self).__name__, style, keywords(Block))
        own = dict(mixer_options or {})
        if own.pop("causal", causal) != causal:
            raise ValueError(
                f"{type(self).__name__}: causal decides whether tokens use later ones, got causal={causal} and "
                f"mixer_options={mixer_options}"
            )
        if cross_options is None:
            cross_options = own if cross is None else {}
        # Batch statistics would leak information from later queries.
        defaults = {"norm": "rms"} if causal else {}
        mixers = {
            "mix": make_mixer(mixer, d, {**own, "causal": True} if causal else own),
            "cross": make_mixer(mixer if cross is None else cross, d, cross_options, defaults=defaults),
        }
        if not reads_context(mixers["cross"]):
            able = [name for name in list_layers("tokens") if reads_context(layer_class(name, "tokens"))]
            raise ValueError(
                f"{type(self).__name__}: cross must read another context than its own input, as {', '.join(able)} do, "
                f"got mixer={mixer!r}, cross={cross!r}"
            )
        super().__init__(d, mixers, **style)

    def forward(
        self,
        x: Float[Tensor, "b n d"],
        context: Float[Tensor, "b m e"],
        mask: Mask | None = None,
        context_mask: Mask | None = None,
    ) -> Float[Tensor, "b n d"]:
        owner = type(self).__name__
        x = self.mix(x, mask=pair_mask(owner, mask, x))
        x = self.cross(x, context=context, mask=pair_mask(owner, context_mask, context, "context_mask"))
        y: Tensor = self.feed(x)
        return y
