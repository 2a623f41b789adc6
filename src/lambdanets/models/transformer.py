"""Transformers whose tokens read each other through any layer of the family.

    pre-norm     x + f(norm(x)), and one more norm behind the last block
    post-norm    norm(x + f(x))

f is a mixer or the feed-forward network of a position, W_2 act(W_1 x). Tokens are (b, n, d); with mixers that see a
grid they are (b, *grid, d).

A mask is True where a token may be used. Its axes say what it is, whatever the sizes: two are tokens, (b, n), which of
them are there; three are pairs, broadcast to (b, n, m). A mask of pairs that all examples share is (1, n, m),
`mask[None]`: with two axes it could not be told from one of tokens when there are as many examples as tokens.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal, get_args

from jaxtyping import Bool, Float
from torch import Tensor, nn

from lambdanets.models.blocks import DropPath
from lambdanets.models.checkpointing import checkpointed
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
    """A mask of these tokens as one of pairs that is the same for every query; one of pairs as it is."""
    if mask is None or mask.ndim != 2:
        return mask
    wanted = (tokens.shape[0], math.prod(tokens.shape[1:-1]))
    if any(got not in (1, want) for got, want in zip(mask.shape, wanted, strict=True)):
        raise ValueError(
            f"{owner}: a {name} of two axes is one of tokens, (b, n) = {wanted}, and one of pairs has three, "
            f"(b or 1, n, m), got shape {tuple(mask.shape)}"
        )
    return mask[:, None]


def reads_context(layer: nn.Module | type[nn.Module]) -> bool:
    """Whether a mixer can read another context than its own input; those that say nothing can."""
    return bool(getattr(layer, "reads_context", True))


class FeedForward(nn.Module):
    """W_2 act(W_1 x), for every position by itself."""

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
    """What a layer says is added to what it was asked about; `forward` hands its further arguments on."""

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
        asked = self.norm(x) if self.norm_first else x
        answer = self.layer(asked, **{name: value for name, value in given.items() if value is not None})
        y: Tensor = x + self.drop_path(self.dropout(answer))
        return y if self.norm_first else self.norm(y)


class Block(nn.Module):
    """What the blocks of encoders and decoders share: mixers, and behind them a feed-forward network.

    Args:
        d: channels of a token.
        hidden: channels inside the feed-forward network; 4 d by default.
        norm_first: pre-norm, or else post-norm.
        activation: of the feed-forward network, "gelu" or "relu".
        dropout: inside the feed-forward network and of everything that is added.
        drop_path: probability that an addition is left out, for a whole example.
        eps: of the norms.
        bias: an offset in norms and the feed-forward network; that of mixers is among their options.
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
    """Tokens read each other, then each thinks for itself.

    Args:
        mixer, mixer_options, layout, facts: see `lambdanets.models.mixers.make_mixer`.
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
        facts: Options | None = None,
        **style: Any,
    ) -> None:
        known_options(type(self).__name__, style, keywords(Block))
        super().__init__(d, {"mix": make_mixer(mixer, d, mixer_options, layout=layout, facts=facts)}, **style)

    def forward(self, x: Float[Tensor, "b *n d"], mask: Mask | None = None) -> Float[Tensor, "b *n d"]:
        y: Tensor = self.feed(self.mix(x, mask=pair_mask(type(self).__name__, mask, x)))
        return y


class DecoderBlock(Block):
    """Tokens read each other, then a context, then each thinks for itself.

    Queries come from the decoder, keys and values of `cross` from the context, which is what an encoder says.

    Args:
        mixer, mixer_options: see `lambdanets.models.mixers.make_mixer`.
        cross, cross_options: of the mixer that reads the context; `mixer` and its options by default.
        causal: a token reads those up to itself. The option `causal=True` then goes to the mixer, by name or callable.
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
                f"{type(self).__name__}: causal says whether tokens read later ones, got causal={causal} and "
                f"mixer_options={mixer_options}"
            )
        if cross_options is None:
            cross_options = own if cross is None else {}
        # Statistics of a batch would tell a query of those that come after it.
        facts = {"norm": "rms"} if causal else {}
        mixers = {
            "mix": make_mixer(mixer, d, {**own, "causal": True} if causal else own),
            "cross": make_mixer(mixer if cross is None else cross, d, cross_options, facts=facts),
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


class Stack(nn.Module):
    """Blocks behind each other. With a norm behind the last, by default if the blocks begin with theirs."""

    def __init__(
        self,
        block: type[Block],
        d: int,
        depth: int,
        *,
        drop_path: float = 0.0,
        final_norm: bool | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        owner = type(self).__name__
        known_options(owner, options, [*keywords(block), *keywords(Block), "final_norm"])
        positive(owner, depth=depth)
        self.d = d
        self.blocks = nn.ModuleList(
            block(d, drop_path=drop_path * n / max(depth - 1, 1), **options) for n in range(depth)
        )
        if final_norm is None:
            final_norm = options.get("norm_first", True)
        eps, bias = options.get("eps", 1e-5), options.get("bias", True)
        self.norm: nn.Module = nn.LayerNorm(d, eps=eps, bias=bias) if final_norm else nn.Identity()
        self.checkpointing = False

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Keep only the inputs of blocks while training, and compute the rest again in the backward pass."""
        self.checkpointing = enable

    def run(self, x: Float[Tensor, "b *n d"], *given: Tensor | None) -> Float[Tensor, "b *n d"]:
        for block in self.blocks:
            x = checkpointed(block, x, *given) if self.checkpointing and self.training else block(x, *given)
        y: Tensor = self.norm(x)
        return y


class Transformer(Stack):
    """A Transformer encoder; with `mixer_options={"causal": True}` what is called a decoder without a context.

    Args:
        d: channels of a token.
        depth: number of blocks.
        drop_path: of the last block; it grows with depth.
        final_norm: a norm behind the last block; by default with pre-norm.
        options: of `EncoderBlock`, such as mixer, mixer_options, hidden, norm_first, activation, dropout.

    >>> Transformer(32, 3, mixer_options={"h": 8})(torch.randn(2, 50, 32)).shape
    torch.Size([2, 50, 32])
    """

    def __init__(self, d: int, depth: int, **options: Any) -> None:
        super().__init__(EncoderBlock, d, depth, **options)

    def forward(self, x: Float[Tensor, "b *n d"], mask: Mask | None = None) -> Float[Tensor, "b *n d"]:
        """`mask` says which tokens are there, (b, n), or which pairs may be used, (b or 1, n, n)."""
        return self.run(x, pair_mask(type(self).__name__, mask, x))


class TransformerDecoder(Stack):
    """A Transformer decoder, causal unless told otherwise.

    Args:
        d, depth, drop_path, final_norm: see `Transformer`.
        options: of `DecoderBlock`, such as mixer, mixer_options, cross, cross_options, causal, hidden, norm_first.

    >>> TransformerDecoder(32, 3)(torch.randn(2, 50, 32), torch.randn(2, 7, 32)).shape
    torch.Size([2, 50, 32])
    """

    def __init__(self, d: int, depth: int, **options: Any) -> None:
        super().__init__(DecoderBlock, d, depth, **options)

    def forward(
        self,
        x: Float[Tensor, "b n d"],
        context: Float[Tensor, "b m e"],
        mask: Mask | None = None,
        context_mask: Mask | None = None,
    ) -> Float[Tensor, "b n d"]:
        """`mask` is for x, (b, n) or (b or 1, n, n), `context_mask` for the context, (b, m) or (b or 1, n, m)."""
        owner = type(self).__name__
        of_context = pair_mask(owner, context_mask, context, "context_mask")
        return self.run(x, context, pair_mask(owner, mask, x), of_context)


class EncoderDecoder(nn.Module):
    """A Transformer decoder that reads what an encoder says of the source.

    Args:
        depth: blocks of the encoder, and of the decoder unless `decoder_depth` says otherwise.
        cross, cross_options, causal: of the decoder, see `DecoderBlock`.
        options: of both, see `Transformer`.

    >>> EncoderDecoder(32, 2)(torch.randn(2, 7, 32), torch.randn(2, 5, 32)).shape
    torch.Size([2, 5, 32])
    """

    def __init__(
        self,
        d: int,
        depth: int,
        decoder_depth: int | None = None,
        *,
        cross: Mixer | None = None,
        cross_options: Options | None = None,
        causal: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        both = [name for name in keywords(EncoderBlock) if name in keywords(DecoderBlock)]
        known_options(type(self).__name__, options, [*both, *keywords(Block), "final_norm"])
        self.encoder = Transformer(d, depth, **options)
        self.decoder = TransformerDecoder(
            d,
            depth if decoder_depth is None else decoder_depth,
            cross=cross,
            cross_options=cross_options,
            causal=causal,
            **options,
        )

    def forward(
        self,
        source: Float[Tensor, "b m d"],
        target: Float[Tensor, "b n d"],
        source_mask: Bool[Tensor, "b m"] | None = None,
        target_mask: Mask | None = None,
    ) -> Float[Tensor, "b n d"]:
        """`source_mask` says which tokens of the source are there, for the encoder and for the decoder."""
        owner = type(self).__name__
        of_source = pair_mask(owner, source_mask, source, "source_mask")
        of_target = pair_mask(owner, target_mask, target, "target_mask")
        context = self.encoder(source, of_source)
        y: Tensor = self.decoder(target, context, of_target, of_source)
        return y
