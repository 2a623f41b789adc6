"""Queries, keys and values: linear maps of the input, and several of them as one product."""

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.nn.hooks import has_hooks
from lambdanets.nn.norms import as_scale_and_shift, batch_norm_together, batch_norms_in_training


class Dense(nn.Linear):
    """A linear map that starts from a normal of std d^-1/2, d the width of its input, and without an offset."""

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.in_features**-0.5)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class Projection(Dense):
    """Without an offset for good: several of them can be taken as one product."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out, bias=False)


Part = tuple[nn.Module, nn.Module | None]


def can_be_joined(parts: Sequence[Part]) -> bool:
    """Nobody replaced a projection or listens to one: then their product can be taken together."""
    return all(type(projection) is Projection and not has_hooks(projection) for projection, _ in parts)


class Joint(NamedTuple):
    """Several projections of the same input, as neighbouring columns of one product."""

    projected: Float[Tensor, "b n _"]
    widths: list[int]
    norms: list[nn.Module | None]  # still to be applied


def project_jointly(x: Float[Tensor, "b n d"], parts: Sequence[Part], *, fold: bool = True) -> Joint:
    """x W of every projection, taken as one product. Parts with a norm come before those without.

    A batch norm that uses its running statistics is a scale and a shift of each channel, and goes into the weights,
    unless whoever reads the product can do it on the way.
    """
    weights: list[Tensor] = []
    shifts: list[Tensor] = []
    left: list[nn.Module | None] = []
    for projection, norm in parts:
        weight = projection.weight
        assert isinstance(weight, Tensor)
        folded = as_scale_and_shift(norm, x) if fold and norm is not None else None
        weights.append(weight if folded is None else weight * folded[0][:, None])
        shifts.append(weight.new_zeros(weight.shape[0]) if folded is None else folded[1])
        left.append(norm if folded is None else None)
    shift = None if left == [norm for _, norm in parts] else torch.cat(shifts)
    return Joint(F.linear(x, torch.cat(weights), shift), [weight.shape[0] for weight in weights], left)


def part(joint: Joint, owner: str, *, kernels: bool) -> tuple[list[Float[Tensor, "b n _"]], list[nn.Module | None]]:
    """The columns of every projection, and the norms still to be applied to them.

    Where they can, and `kernels` is set, the kernels apply batch norms to the first columns before these part.
    """
    columns = list(joint.projected.split(joint.widths, -1))
    normed = list(takewhile(lambda norm: norm is not None, joint.norms))
    widths = joint.widths[: len(normed)]
    together = batch_norms_in_training(normed, joint.projected) if normed and kernels else None
    if together is None:
        return columns, joint.norms
    columns[: len(normed)] = batch_norm_together(together, joint.projected[..., : sum(widths)], owner).split(widths, -1)
    return columns, [None] * len(normed) + joint.norms[len(normed) :]
