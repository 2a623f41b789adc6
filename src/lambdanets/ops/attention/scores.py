"""How well a query and a key go together.

    dot         q . k
    scaled dot  q . k / sqrt(k)
    general     q^T W k
    additive    w . tanh(W q + U k)
    cosine      q . k / (|q| |k|)

All take queries (b, n, h, k) and keys (b, m, h, k) to scores (b, h, n, m).
"""

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor


def dot_scores(q: Float[Tensor, "b n h k"], keys: Float[Tensor, "b m h k"]) -> Float[Tensor, "b h n m"]:
    return torch.einsum("bnhk,bmhk->bhnm", q, keys)


def scaled_dot_scores(q: Float[Tensor, "b n h k"], keys: Float[Tensor, "b m h k"]) -> Float[Tensor, "b h n m"]:
    """Of unit variance if queries and keys are: the sum of k products has k times that of one."""
    return dot_scores(q * q.shape[-1] ** -0.5, keys)


def general_scores(
    q: Float[Tensor, "b n h k"], keys: Float[Tensor, "b m h l"], weight: Float[Tensor, "h k l"]
) -> Float[Tensor, "b h n m"]:
    return dot_scores(torch.einsum("bnhk,hkl->bnhl", q, weight), keys)


def additive_scores(
    q: Float[Tensor, "b n h k"],
    keys: Float[Tensor, "b m h l"],
    of_q: Float[Tensor, "h k a"],
    of_keys: Float[Tensor, "h l a"],
    weight: Float[Tensor, "h a"],
) -> Float[Tensor, "b h n m"]:
    """A network with one hidden layer of a units for every pair; the halves that it is made of are shared by pairs."""
    hidden_q = torch.einsum("bnhk,hka->bhna", q, of_q)[:, :, :, None]
    hidden_keys = torch.einsum("bmhl,hla->bhma", keys, of_keys)[:, :, None]
    return torch.einsum("bhnma,ha->bhnm", (hidden_q + hidden_keys).tanh(), weight)


def cosine_scores(q: Float[Tensor, "b n h k"], keys: Float[Tensor, "b m h k"]) -> Float[Tensor, "b h n m"]:
    """In [-1, 1]; the temperature has to come from elsewhere. A vector of zeros scores zero."""
    return dot_scores(F.normalize(q, dim=-1), F.normalize(keys, dim=-1))
