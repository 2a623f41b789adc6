"""Local relation (Hu et al. 2019): how well two positions compose, by what they look like and where they stand.

    A[g, o, n] = softargmax_o(q[g, n] . k[g, n + o] + G[g, o])

Each group g of channels has its own map. The geometry prior G is a function of the offset o alone.
"""

from jaxtyping import Bool, Float
from torch import Tensor

from lambdanets.ops.attention.neighbours import around, window_softmax
from lambdanets.ops.precision import in_full_precision


@in_full_precision
def composability(
    q: Float[Tensor, "b k g i j"],
    keys: Float[Tensor, "b k g i j"],
    prior: Float[Tensor, "g r s"],
    there: Bool[Tensor, "#b 1 r s i j"],
) -> Float[Tensor, "b g r s i j"]:
    """The weights of every window; k is small, and one is enough."""
    scores = prior[..., None, None]
    for of_q, of_keys in zip(q.unbind(1), keys.unbind(1), strict=True):
        scores = scores + of_q[:, :, None, None] * around(of_keys, (prior.shape[1], prior.shape[2]))
    return window_softmax(scores, there)
