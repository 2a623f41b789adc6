"""Transformers whose tokens are mixed by any layer of the family: encoders, decoders, and both together.

Tokens are (b, n, d), or (b, *grid, d) with mixers that see a grid. See `lambdanets.models.transformer_blocks` for
blocks and masks.
"""

from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from lambdanets.models.mixers import Mixer
from lambdanets.models.network import checkpoint_blocks, run_block
from lambdanets.models.transformer_blocks import Block, DecoderBlock, EncoderBlock, Mask, Options, pair_mask
from lambdanets.nn.arguments import keywords, known_options, positive


class Stack(nn.Module):
    """A sequence of blocks, with a final norm by default if blocks are pre-norm."""

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

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Keep only the inputs of blocks while training, and recompute the rest in the backward pass."""
        checkpoint_blocks([*self.blocks], enable)

    def run(self, x: Float[Tensor, "b *n d"], *given: Tensor | None) -> Float[Tensor, "b *n d"]:
        for block in self.blocks:
            x = run_block(self, block, x, *given)
        y: Tensor = self.norm(x)
        return y


class Transformer(Stack):
    """A Transformer encoder; with `mixer_options={"causal": True}` a decoder without context.

    Args:
        d: channels of a token.
        depth: number of blocks.
        drop_path: of the last block; it grows linearly with depth.
        final_norm: a norm after the last block; by default with pre-norm.
        options: of `EncoderBlock`, such as mixer, mixer_options, hidden, norm_first, activation, dropout.

    >>> Transformer(32, 3, mixer_options={"h": 8})(torch.randn(2, 50, 32)).shape
    torch.Size([2, 50, 32])
    """

    def __init__(self, d: int, depth: int, **options: Any) -> None:
        super().__init__(EncoderBlock, d, depth, **options)

    def forward(self, x: Float[Tensor, "b *n d"], mask: Mask | None = None) -> Float[Tensor, "b *n d"]:
        """`mask` is for tokens, (b, n), or pairs, (b or 1, n, n); True where they may be used."""
        return self.run(x, pair_mask(type(self).__name__, mask, x))


class TransformerDecoder(Stack):
    """A Transformer decoder, causal by default.

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
    """A Transformer encoder for a source, and a decoder that reads its output.

    Args:
        depth: blocks of the encoder, and of the decoder unless `decoder_depth` is given.
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
        """`source_mask` is True for tokens of the source that the encoder and the decoder may use."""
        owner = type(self).__name__
        of_source = pair_mask(owner, source_mask, source, "source_mask")
        of_target = pair_mask(owner, target_mask, target, "target_mask")
        context = self.encoder(source, of_source)
        y: Tensor = self.decoder(target, context, of_target, of_source)
        return y
