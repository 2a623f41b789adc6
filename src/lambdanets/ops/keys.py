"""Keys are normalised over the context positions, for each (k, u) on its own: softmax, L2, or not at all."""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

KeyNorm = Literal["softmax", "l2", "none"]


def normalise_keys(
    keys: Float[Tensor, "*b m k u"],
    key_norm: KeyNorm = "softmax",
    allowed: Bool[Tensor, "*n m"] | None = None,
) -> Float[Tensor, "*c m k u"]:
    """Kbar: keys normalised over the allowed m, per example, k and u; zero where not allowed.

    Leading axes broadcast, so keys `(b, 1, m, k, u)` under `(b, n, m)` give every query its own normalisation.
    """
    if key_norm not in ("softmax", "l2", "none"):
        raise ValueError(f'key_norm must be "softmax", "l2" or "none", got {key_norm!r}')
    if allowed is not None:
        if keys.ndim != allowed.ndim + 2:
            raise ValueError(
                f"keys normalised once cannot serve queries that may use different positions: for allowed of shape "
                f"{tuple(allowed.shape)} keys must have {allowed.ndim + 2} axes, got shape {tuple(keys.shape)}"
            )
        allowed = allowed[..., None, None]
    if key_norm == "softmax":
        if allowed is None:
            return keys.softmax(-3)
        # Where nothing is allowed the softmax runs over everything and is then dropped: no 0/0 on the way.
        blocked = ~allowed & allowed.any(-3, keepdim=True)
        return torch.where(allowed, torch.where(blocked, -torch.inf, keys).softmax(-3), 0.0)
    if allowed is not None:
        keys = torch.where(allowed, keys, 0.0)
    if key_norm == "l2" and keys.shape[-3] > 0:
        keys = keys / _magnitude(keys)
        return keys * inverse_root(keys.square().sum(-3, keepdim=True))
    return keys


def _magnitude(keys: Float[Tensor, "*b m k u"]) -> Float[Tensor, "*b 1 k u"]:
    """The largest key of each (k, u): a unit in which squares keep clear of overflow.

    It changes no L2 norm and so has no gradient; with it, that of a single key is exactly zero, as it should be.
    """
    largest = keys.detach().abs().amax(-3, keepdim=True)
    return torch.where(largest > 0, largest, 1.0)


def inverse_root(x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """1 / sqrt(x), and zero at zero with a zero gradient."""
    some = x > 0
    return torch.where(some, torch.where(some, x, 1.0).rsqrt(), 0.0)
