"""Attention to a context that was made short first (Linformer): r sums over its positions instead of these.

    K' = E K,  V' = F V,  Y_n = sum_r softargmax_r(k^-1/2 q_n . k'_r) v'_r

E and F are r x m, so time and memory grow with n r and m r, not with n m.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lambdanets.ops.attention.attend import attend
from lambdanets.ops.masks import drop_unusable


def projected_attention(
    q: Float[Tensor, "b n h k"],
    keys: Float[Tensor, "b m h k"],
    values: Float[Tensor, "b m h v"],
    of_keys: Float[Tensor, "r m"],
    of_values: Float[Tensor, "r m"],
    rows: Bool[Tensor, "#b m"] | None = None,
) -> Float[Tensor, "b n h v"]:
    """A position that may not be used adds nothing to any sum; if no row may be used, all values are zero."""
    keys = torch.einsum("bmhk,rm->brhk", drop_unusable(keys, rows), of_keys)
    values = torch.einsum("bmhv,rm->brhv", drop_unusable(values, rows), of_values)
    return attend(q, keys, values)
