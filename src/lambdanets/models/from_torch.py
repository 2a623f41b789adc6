"""Conversion of the Transformers of torch.nn to ours, with the same weights and outputs.

Ours are always batch-first, and their masks are True where a token may be used.
"""

import warnings
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from lambdanets.models.transformer import EncoderDecoder, Stack, Transformer, TransformerDecoder
from lambdanets.models.transformer_blocks import Activation, Block, DecoderBlock, EncoderBlock

TheirLayer = nn.TransformerEncoderLayer | nn.TransformerDecoderLayer
TheirStack = nn.TransformerEncoder | nn.TransformerDecoder

# Names of parts in torch and here.
SHARED = {
    "self_attn": "mix.layer",
    "norm1": "mix.norm",
    "linear1": "feed.layer.expand",
    "linear2": "feed.layer.reduce",
}
IN_ENCODERS = {**SHARED, "norm2": "feed.norm"}
IN_DECODERS = {**SHARED, "multihead_attn": "cross.layer", "norm2": "cross.norm", "norm3": "feed.norm"}


def from_torch(theirs: nn.Module, *, causal: bool = False) -> nn.Module:
    """Convert a Transformer of torch.nn, its encoder or decoder, or one of their layers.

    Outputs in eval mode are the same for the same masks; options that ours does not support raise an error. Dropout of
    attention weights is not supported: it is left out, with a warning if `theirs` is in training mode. All other
    dropout is kept.

    Args:
        theirs: becomes an `EncoderDecoder`, a `Transformer` or `TransformerDecoder`, an `EncoderBlock` or
            `DecoderBlock`.
        causal: builds in the causal mask that theirs takes as `mask` or `tgt_mask`, in the decoder only for a whole
            Transformer. By default ours equals theirs without such a mask.

    >>> theirs = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(32, 4, batch_first=True), 2).eval()
    >>> ours, x = from_torch(theirs), torch.randn(2, 7, 32)
    >>> torch.testing.assert_close(ours(x), theirs(x))
    """
    for part in theirs.modules():
        refuse_unlike(part)
    warn_of_dropout(theirs)
    if isinstance(theirs, TheirLayer):
        return block_from(theirs, causal).train(theirs.training)
    if isinstance(theirs, TheirStack):
        return stack_from(theirs, causal).train(theirs.training)
    if isinstance(theirs, nn.Transformer):
        with torch.device("meta"):
            both = EncoderDecoder(theirs.d_model, 1)
        both.encoder, both.decoder = stack_from(theirs.encoder, False), stack_from(theirs.decoder, causal)  # type: ignore[assignment]
        return both.train(theirs.training)
    raise ValueError(f"from_torch: theirs must be a Transformer of torch.nn, got {type(theirs).__name__}")


def refuse_unlike(part: nn.Module) -> None:
    """Options of torch's classes that ours do not support, and subclasses, which may do something else."""
    if isinstance(part, TheirLayer | TheirStack | nn.Transformer) and not type(part).__module__.startswith("torch.nn."):
        raise ValueError(
            f"from_torch: {type(part).__name__} is made from a class of torch.nn and may do something else"
        )
    if not isinstance(part, TheirLayer):
        return
    owner = type(part).__name__
    norms = {name: norm for name, norm in part.named_children() if name.startswith("norm")}
    for name, norm in norms.items():
        if type(norm) is not nn.LayerNorm or norm.eps != part.norm1.eps or not norm.elementwise_affine:
            raise ValueError(
                f"from_torch: {owner}: norms must be LayerNorms of one eps, with weights, got {name}={norm}"
            )
    for name, attention in part.named_children():
        if isinstance(attention, nn.MultiheadAttention) and (
            attention.num_heads != part.self_attn.num_heads
            or attention.in_proj_weight is None
            or attention.bias_k is not None
            or attention.add_zero_attn
        ):
            raise ValueError(
                f"from_torch: {owner}: attentions must have one number of heads, keys and values as wide as queries, "
                f"and neither add_bias_kv nor add_zero_attn, got {name} with num_heads={attention.num_heads}, "
                f"kdim={attention.kdim}, vdim={attention.vdim}, add_bias_kv={attention.bias_k is not None}, "
                f"add_zero_attn={attention.add_zero_attn}"
            )


def warn_of_dropout(theirs: nn.Module) -> None:
    rates = {part.dropout for part in theirs.modules() if isinstance(part, nn.MultiheadAttention)}
    if theirs.training and any(rates):
        warnings.warn(
            f"from_torch: dropout={max(rates)} of attention weights is left out, so training differs from torch's",
            stacklevel=3,
        )


def block_from(theirs: TheirLayer, causal: bool) -> Block:
    block = EncoderBlock if isinstance(theirs, nn.TransformerEncoderLayer) else DecoderBlock
    with torch.device("meta"):
        ours = block(**options_of(theirs, causal))
    weights = dict(weights_of(theirs))
    ours.load_state_dict(weights, assign=True)
    for name, parameter in ours.named_parameters():
        parameter.requires_grad_(weights[name].requires_grad)
    return ours


def stack_from(theirs: TheirStack, causal: bool) -> Stack:
    layers: list[TheirLayer] = list(theirs.layers)
    stack = Transformer if isinstance(theirs, nn.TransformerEncoder) else TransformerDecoder
    with torch.device("meta"):
        ours = stack(depth=1, final_norm=False, **options_of(layers[0], causal))
    ours.blocks = nn.ModuleList(block_from(layer, causal) for layer in layers)
    if theirs.norm is not None:
        ours.norm = deepcopy(theirs.norm)
    return ours


def options_of(theirs: TheirLayer, causal: bool) -> dict[str, Any]:
    """Arguments with which a block or stack of ours is like a layer of theirs."""
    attention, is_encoder = theirs.self_attn, isinstance(theirs, nn.TransformerEncoderLayer)
    mixer_options = {"h": attention.num_heads, "bias": attention.in_proj_bias is not None}
    return {
        "d": attention.embed_dim,
        "hidden": theirs.linear1.out_features,
        "norm_first": theirs.norm_first,
        "activation": activation_of(theirs),
        "dropout": theirs.dropout.p,
        "eps": theirs.norm1.eps,
        "bias": theirs.linear1.bias is not None,
        "mixer_options": {**mixer_options, "causal": causal} if is_encoder else mixer_options,
        **({} if is_encoder else {"causal": causal}),
    }


def activation_of(theirs: TheirLayer) -> Activation:
    given: Any = theirs.activation
    if given is F.relu or isinstance(given, nn.ReLU):
        return "relu"
    if given is F.gelu or (isinstance(given, nn.GELU) and given.approximate == "none"):
        return "gelu"
    raise ValueError(f"from_torch: activation must be relu or gelu, got activation={given}")


def weights_of(theirs: TheirLayer) -> Iterator[tuple[str, Tensor]]:
    names = IN_ENCODERS if isinstance(theirs, nn.TransformerEncoderLayer) else IN_DECODERS
    for theirs_name, ours_name in names.items():
        for name, tensor in copied(theirs.get_submodule(theirs_name)).items():
            if name.startswith("in_proj_"):
                yield from split_heads(f"{ours_name}.heads", name.removeprefix("in_proj_"), tensor)
            else:
                yield f"{ours_name}.{name.replace('out_proj', 'heads.out')}", tensor


def split_heads(prefix: str, name: str, together: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Separate the weights or biases of queries, keys and values that are stored as one tensor."""
    for part, tensor in zip(("query", "key", "value"), together.chunk(3), strict=True):
        yield f"{prefix}.{part}.{name}", copy_of(tensor)


def copied(module: nn.Module) -> dict[str, Tensor]:
    return {name: copy_of(tensor) for name, tensor in module.state_dict(keep_vars=True).items()}


def copy_of(tensor: Tensor) -> Tensor:
    """A copy of the values and of requires_grad."""
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)
