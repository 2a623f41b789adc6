"""Gates: as many channels out as in."""

import torch

from families.case import Case
from lambdanets.nn.gates.bam import BAM2d
from lambdanets.nn.gates.cbam import CBAM2d
from lambdanets.nn.gates.film import FiLM2d, FiLMMixer
from lambdanets.nn.gates.squeeze import SqueezeExcitation2d, SqueezeExcitationMixer
from lambdanets.ops.attention.reference import gates as reference


def all_pairs(x, context, mask):
    return torch.ones(len(x), x.shape[1], context.shape[1], dtype=torch.bool) if mask is None else mask


def squeeze(x, context, weights, mask, case):
    return reference.squeeze_excitation(x, weights, mask=all_pairs(x, context, mask), prefix="gate.")


def film(x, context, weights, mask, case):
    return reference.film(x, context, weights, mask=all_pairs(x, context, mask))


def bam(x, context, weights, mask, case):
    return reference.bam(x, weights, size=case.grid, dilation=case.arguments.get("dilation", 4))


def cbam(x, context, weights, mask, case):
    return reference.cbam(x, weights, size=case.grid)


WIDTH = {"width": 6, "out": 6}
TOKENS = {"grid": (11,), **WIDTH}
CASES = [
    Case("plain", SqueezeExcitation2d, squeeze, {"ratio": 2}, **WIDTH),
    Case("narrower than its ratio", SqueezeExcitation2d, squeeze, **WIDTH),
    Case("padding", SqueezeExcitation2d, squeeze, {"ratio": 3}, mask="rows", **WIDTH),
    Case("padding", SqueezeExcitationMixer, squeeze, {"ratio": 2}, mask="rows", **TOKENS),
    Case("plain", FiLM2d, film, **WIDTH),
    Case("cross", FiLM2d, film, context_grid=(4, 6), **WIDTH),
    Case("padding", FiLMMixer, film, mask="rows", **TOKENS),
    Case("cross padding", FiLMMixer, film, context_grid=(7,), mask="rows", **TOKENS),
    Case("plain", BAM2d, bam, {"ratio": 2}, grid=(7, 5), **WIDTH),
    Case("dilation", BAM2d, bam, {"dilation": 2}, grid=(7, 5), **WIDTH),
    Case("plain", CBAM2d, cbam, {"ratio": 2}, grid=(7, 5), **WIDTH),
    Case("narrower than its ratio", CBAM2d, cbam, **WIDTH),
]
