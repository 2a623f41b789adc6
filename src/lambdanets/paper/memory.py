"""Table 4: memory of embeddings and attention maps, in half precision.

With n positions at the output resolution of a stage, a lambda layer stores k n^2 embeddings, shared by all examples and
heads. Self-attention stores a map of n^2 for each of them, axial attention 2 n^1.5.
"""

import math

POSITIONS = (56**2, 28**2, 14**2, 7**2)
BLOCKS = (3, 4, 6, 3)
BATCH_TIMES_HEADS = 2048
BYTES = 2


def _gib(numbers: float) -> float:
    return BYTES * numbers / 2**30


def _over_blocks(power: float) -> float:
    return math.fsum(blocks * math.pow(n, power) for blocks, n in zip(BLOCKS, POSITIONS, strict=True))


MEMORY = {
    "global self-attention": _gib(BATCH_TIMES_HEADS * _over_blocks(2.0)),
    "axial self-attention": _gib(BATCH_TIMES_HEADS * 2 * _over_blocks(1.5)),
    "lambda": _gib(16 * _over_blocks(2.0)),
    "lambda k=8": _gib(8 * _over_blocks(2.0)),
    "lambda, shared embeddings": _gib(16 * math.fsum(n**2 for n in POSITIONS)),
}
