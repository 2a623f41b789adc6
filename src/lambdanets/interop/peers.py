"""Readers of other libraries' lambda layers: which parameter of theirs is which of ours, in which order.

Both libraries compute what `LambdaLayer2d` computes. lucidrains stores keys and values as (u, k) and (u, v), we store
them as (k, u) and (v, u). Both keep the embeddings of a window as the weight of a 3-d convolution, whose bias is our
`position_bias`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lambdanets.compat import BatchNorm


class CannotAdoptError(ValueError):
    """A layer has something that ours does not support; the message says what."""


class Reading(NamedTuple):
    """A layer of another library in our terms."""

    options: dict[str, Any]  # arguments of LambdaLayer2d
    state: dict[str, Tensor]  # its state_dict, with requires_grad
    norms: dict[str, BatchNorm]  # with the settings for our norms
    behind: nn.Module | None  # applied to the output


def read_lucidrains(layer: Any) -> Reading:
    """`lambda_networks.LambdaLayer`."""
    u, h = layer.u, layer.heads
    k, v = layer.to_q.weight.shape[0] // h, layer.to_v.weight.shape[0] // u
    key_order, value_order = intra_depth_last(u, k), intra_depth_last(u, v)
    if layer.local_contexts:
        side, table, bias = read_window("pos_conv", layer.pos_conv, flat_axis=0)
        size = None
    else:
        side, table, bias = None, layer.rel_pos_emb.flatten(0, 1), None  # (2n - 1, 2n - 1, k, u)
        size = (layer.rel_pos_emb.shape[0] + 1) // 2
    state = {
        "query.weight": read_projection("to_q", layer.to_q),
        "key.weight": read_projection("to_k", layer.to_k)[key_order],
        "value.weight": read_projection("to_v", layer.to_v)[value_order],
        **read_norm("query_norm", layer.norm_q),
        **read_norm("value_norm", layer.norm_v, value_order),
        "table.weight": table,
    }
    d = layer.to_q.weight.shape[1]
    options = {"d_in": d, "d_out": h * v, "k": k, "h": h, "u": u, "scope": side, "size": size}
    return reading(options, state, bias, layer)


def read_timm(layer: Any) -> Reading:
    """`timm.layers.lambda_layer.LambdaLayer`; its u is 1."""
    h, k, v = layer.num_heads, layer.dim_qk, layer.dim_v
    widths = [h * k, k, v]
    if layer.pos_emb is None:
        side, table, bias = read_window("conv_lambda", layer.conv_lambda, flat_axis=2)
        size = None
    else:
        side, table, bias = None, layer.pos_emb.flatten(0, 1)[..., None], None  # (2i - 1, 2j - 1, k)
        size = tuple(layer.feat_size)
    query, key, value = read_projection("qkv", layer.qkv, with_bias=True).split(widths)
    state = {
        "query.weight": query,
        "key.weight": key,
        "value.weight": value,
        **read_norm("query_norm", layer.norm_q),
        **read_norm("value_norm", layer.norm_v),
        "table.weight": table,
    }
    if layer.qkv.bias is not None:
        # Batch norms remove a bias of queries and values together with the mean. A bias of the keys is the same at all
        # positions, so the softmax over positions ignores it.
        of_queries, _, of_values = layer.qkv.bias.detach().split(widths)
        for name, shift in (("query_norm", of_queries), ("value_norm", of_values)):
            if f"{name}.running_mean" in state:
                state[f"{name}.running_mean"] = state[f"{name}.running_mean"] - shift
    d = layer.qkv.weight.shape[1]
    options = {"d_in": d, "d_out": h * v, "k": k, "h": h, "u": 1, "scope": side, "size": size}
    return reading(options, state, bias, layer, None if isinstance(layer.pool, nn.Identity) else layer.pool)


# By module and class name, so that no library has to be imported.
READERS: dict[tuple[str, str], Callable[[Any], Reading]] = {
    ("lambda_networks.lambda_networks", "LambdaLayer"): read_lucidrains,
    ("timm.layers.lambda_layer", "LambdaLayer"): read_timm,
}


def reading(
    options: dict[str, Any], state: dict[str, Tensor], bias: Tensor | None, layer: Any, behind: nn.Module | None = None
) -> Reading:
    if bias is not None:
        state = {**state, "position_bias": bias}
    options = {**options, "position_bias": bias is not None}
    return Reading(options, state, {"query_norm": layer.norm_q, "value_norm": layer.norm_v}, behind)


def intra_depth_last(u: int, channels: int) -> Int[Tensor, "_"]:
    """Indices that reorder channels stored as (u, channels) to (channels, u).

    >>> intra_depth_last(2, 3)
    tensor([0, 3, 1, 4, 2, 5])
    """
    return torch.arange(u * channels).view(u, channels).T.flatten()


def read_projection(name: str, convolution: nn.Module, *, with_bias: bool = False) -> Float[Tensor, "e d"]:
    """A 1x1 convolution as a matrix; `with_bias` if the caller handles the bias."""
    if type(convolution) is not nn.Conv2d or convolution.kernel_size != (1, 1) or convolution.groups != 1:
        raise CannotAdoptError(f"its {name} is {convolution}, not a 1x1 convolution")
    if convolution.stride != (1, 1) or convolution.padding not in ((0, 0), "valid", "same"):
        raise CannotAdoptError(f"its {name} is {convolution}, which does not stay at each position")
    if convolution.bias is not None and not with_bias:
        raise CannotAdoptError(f"its {name} is {convolution}, and our projections have no bias")
    return convolution.weight.flatten(1)


def read_window(
    name: str, convolution: nn.Module, flat_axis: int
) -> tuple[int, Float[Tensor, "p k u"], Float[Tensor, "k"] | None]:
    """The side of a window, its embeddings and their bias, from a 3-d convolution with size 1 along one axis."""
    if type(convolution) is not nn.Conv3d:
        raise CannotAdoptError(f"its {name} is {convolution}, not a 3-d convolution")
    weight = convolution.weight.squeeze(2 + flat_axis)  # (k, u, r, r)
    side = weight.shape[-1]
    around = tuple(s // 2 for s in convolution.kernel_size)
    is_square = weight.ndim == 4 and weight.shape[2] == side and side % 2 == 1
    is_plain = {*convolution.stride, *convolution.dilation, convolution.groups} == {1}
    if not is_square or not is_plain or convolution.padding != around or convolution.padding_mode != "zeros":
        raise CannotAdoptError(f"its {name} is {convolution}, not a square window of odd side around each position")
    return side, weight.permute(2, 3, 0, 1).flatten(0, 1), convolution.bias


def read_norm(name: str, norm: nn.Module, order: Int[Tensor, "_"] | None = None) -> dict[str, Tensor]:
    """Parameters and statistics of a batch norm, with our names and in our order of channels."""
    if type(norm) not in (nn.BatchNorm2d, nn.SyncBatchNorm):
        raise CannotAdoptError(f"its {name} is {norm}, not a batch norm")
    tensors = {**dict(norm.named_parameters()), **dict(norm.named_buffers())}
    return {f"{name}.{part}": t if order is None or t.ndim == 0 else t[order] for part, t in tensors.items()}
