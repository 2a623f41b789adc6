"""Queries, keys and values: linear maps of the input, and several of them as one product."""

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.kernels import unsupported
from lambdanets.nn.hooks import has_hooks
from lambdanets.nn.norms import as_scale_and_shift, batch_norm_together, fused_norms


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
    """Whether no projection was replaced or has hooks: then they can be taken as one product."""
    projections = [projection for projection, _ in parts]
    return {*map(type, projections)} == {Projection} and not has_hooks(*projections)


class Joint(NamedTuple):
    """Several projections of the same input, as neighbouring columns of one product."""

    projected: Float[Tensor, "b n _"]
    widths: list[int]
    norms: list[nn.Module | None]  # still to be applied


def project_jointly(x: Float[Tensor, "b n d"], parts: Sequence[Part], *, fold: bool = True) -> Joint:
    """x W of every projection, taken as one product. Parts with a norm come before those without.

    A batch norm that uses its running statistics is a scale and a shift of each channel, and goes into the weights,
    unless the operator that reads the product applies it.
    """
    weights: list[Tensor] = [projection.weight for projection, _ in parts]  # type: ignore[misc]
    norms, widths, shift = [norm for _, norm in parts], [weight.shape[0] for weight in weights], None
    folded = [as_scale_and_shift(norm, x) if fold and norm is not None else None for norm in norms]
    if any(known is not None for known in folded):
        shifts = [weight.new_zeros(weight.shape[0]) for weight in weights]
        for i, known in enumerate(folded):
            if known is not None:
                weights[i], shifts[i], norms[i] = weights[i] * known[0][:, None], known[1], None
        shift = torch.cat(shifts)
    return Joint(F.linear(x, torch.cat(weights), shift), widths, norms)


def part(joint: Joint, owner: str, *, kernels: bool) -> tuple[list[Float[Tensor, "b n _"]], list[nn.Module | None]]:
    """The columns of every projection, and the norms still to be applied to them.

    Where they can, and `kernels` is set, the kernels apply batch norms to the first columns before these part.
    """
    x, columns = joint.projected, list(joint.projected.split(joint.widths, -1))
    normed = [norm for norm in takewhile(lambda norm: norm is not None, joint.norms) if norm is not None]
    norms = fused_norms(normed, x.dtype) if normed and kernels else None
    if norms is None or norms.kind != "batch" or x.numel() == 0 or unsupported(x.device, x.dtype) is not None:
        return columns, joint.norms
    widths = joint.widths[: len(normed)]
    columns[: len(normed)] = batch_norm_together(norms, normed, x[..., : sum(widths)], owner).split(widths, -1)
    return columns, [None] * len(normed) + joint.norms[len(normed) :]
