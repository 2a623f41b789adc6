"""Attention as a dictionary that can be asked for what is not in it: the answer is a mean of the values stored."""

from jaxtyping import Float
from torch import Tensor

from lambdanets.ops.attention.scores import dot_scores
from lambdanets.ops.attention.softargmax import softargmax


def look_up(
    query: Float[Tensor, "n k"],
    keys: Float[Tensor, "m k"],
    values: Float[Tensor, "m v"],
    *,
    beta: float | None = None,
) -> Float[Tensor, "n v"]:
    """y_n = sum_m softargmax_m(beta q_n . k_m) v_m: the values of the keys that a query resembles.

    `beta` is k^-1/2 by default; if it is infinite, the answer is the value of the nearest key alone.

    >>> keys, values = torch.eye(3), torch.tensor([[1.0], [2.0], [3.0]])
    >>> look_up(keys[1:2], keys, values, beta=float("inf"))
    tensor([[2.]])
    """
    scores = dot_scores(query[None, :, None], keys[None, :, None])[0, 0]
    return softargmax(scores, keys.shape[1] ** -0.5 if beta is None else beta) @ values
