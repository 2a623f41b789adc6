"""How much attention each context position gets: softly, or all of it for one.

    soft    a = softargmax(s) = exp(beta s) / sum exp(beta s)       a >= 0, sums to 1
    hard    a = one-hot at the largest score                        the limit of soft attention for beta -> infinity

Both are maps over the last axis, and both give zeros where a mask leaves nothing to attend to.
"""

import math
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lambdanets.ops.precision import in_full_precision

Estimator = Literal["straight_through", "sampled"]


@in_full_precision
def softargmax(
    scores: Float[Tensor, "*b m"], beta: float = 1.0, mask: Bool[Tensor, "..."] | None = None
) -> Float[Tensor, "*b m"]:
    """The softmax of `beta` times the scores, over the positions that the mask leaves.

    `beta` is an inverse temperature: 0 attends to all positions alike, infinity to the largest score. Scores do not
    tell how deep queries and keys are, so it is 1 by default: for products of depth k, either scale these
    (`scaled_dot_scores`) or say `beta=k**-0.5`, as `attend` and `look_up` do by default.

    >>> softargmax(torch.tensor([[0.0, 0.0], [3.0, 5.0]]), mask=torch.tensor([[True, True], [False, False]]))
    tensor([[0.5000, 0.5000],
            [0.0000, 0.0000]])
    """
    if not beta > -math.inf:  # NaN compares false
        raise ValueError(f"softargmax: beta must be a number above minus infinity, got beta={beta}")
    if beta == math.inf:
        return hardargmax(scores, mask)
    scores = beta * scores
    if mask is None:
        return scores.softmax(-1)
    # A row of nothing but -inf would be NaN, in the gradient too, so it is never made.
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(~mask, 0.0)


def hardargmax(scores: Float[Tensor, "*b m"], mask: Bool[Tensor, "..."] | None = None) -> Float[Tensor, "*b m"]:
    """One-hot at the largest score that the mask leaves, the first of equals; it has no gradient.

    >>> hardargmax(torch.tensor([1.0, 5.0, 5.0]))
    tensor([0., 1., 0.])
    """
    if scores.shape[-1] == 0:
        return torch.zeros_like(scores)
    masked = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
    chosen = torch.zeros_like(scores).scatter(-1, masked.argmax(-1, keepdim=True), 1.0)
    return chosen if mask is None else chosen.masked_fill(~mask, 0.0)


def hard_attention_map(
    scores: Float[Tensor, "*b m"],
    *,
    estimator: Estimator = "straight_through",
    beta: float = 1.0,
    mask: Bool[Tensor, "..."] | None = None,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "*b m"]:
    """A one-hot map that can be trained: its gradient is that of `softargmax(scores, beta)`.

    Args:
        estimator: "straight_through" chooses the largest score. "sampled" chooses position m with the probability that
            the soft map gives it (Gumbel noise on the scores), and takes the gradient at the same noise.
        beta: the inverse temperature, 1 by default, see `softargmax`.
        generator: where the noise comes from.
    """
    if estimator not in get_args(Estimator):
        offered = ", ".join(map(repr, get_args(Estimator)))
        raise ValueError(f"hard_attention_map: estimator must be one of {offered}, got estimator={estimator!r}")
    if estimator == "sampled":
        noise = torch.empty_like(scores).exponential_(generator=generator).log().neg()
        scores = scores + noise / beta
    soft = softargmax(scores, beta, mask)
    return hardargmax(scores.detach(), mask) - soft.detach() + soft
