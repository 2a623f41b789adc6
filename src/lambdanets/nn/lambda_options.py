"""The options of a lambda layer: checked once, and as one value that describes what the layer does."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

from lambdanets.nn.arguments import one_of, positive
from lambdanets.nn.norms import Norm
from lambdanets.ops.geometry import Causal
from lambdanets.ops.keys import KeyNorm
from lambdanets.ops.plans import PLANS

Size = int | Sequence[int]
Terms = Literal["both", "content", "position"]


class LambdaOptions(NamedTuple):
    """Everything that a lambda layer does, apart from its parameters; the names are the constructor's."""

    d_in: int
    d_out: int
    d_context: int
    k: int
    h: int
    u: int
    scope: tuple[int, ...] | None  # the window of its table, None without a table of offsets
    size: tuple[int, ...] | None  # the largest map of a global table
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    terms: Terms
    key_norm: KeyNorm
    norm: Norm
    causal: Causal
    relations: int | None
    position_bias: bool
    plan: str | None


def check_options(owner: str, **options: Any) -> None:
    """Refuse the arguments of a lambda layer that are wrong, or that contradict each other."""
    d_out, h, terms, causal, norm = (options[name] for name in ("d_out", "h", "terms", "causal", "norm"))
    positive(owner, **{name: options[name] for name in ("k", "h", "u")})
    if d_out % h:
        raise ValueError(f"{owner}: d_out must be divisible by h, got d_out={d_out}, h={h}")
    one_of(owner, terms=(terms, get_args(Terms)))
    one_of(owner, key_norm=(options["key_norm"], get_args(KeyNorm)))
    one_of(owner, norm=(norm, ("auto", *get_args(Norm))))
    one_of(owner, causal=(causal, (False, True, "strict")))
    one_of(owner, position_bias=(options["position_bias"], (False, True)))
    one_of(owner, plan=(options["plan"], (None, *PLANS)))
    table_std = options["table_std"]
    if not isinstance(table_std, (int, float)) or table_std < 0:
        raise ValueError(f"{owner}: table_std must be a number of at least 0, got table_std={table_std!r}")
    if causal and norm == "batch":
        raise ValueError(
            f'{owner}: norm="batch" mixes all positions and would show a causal layer its future, '
            f'got causal={causal!r}; use norm="rms", "none" or "auto"'
        )
    of_position = (options["relations"], options["table"], options["position_bias"])
    if terms == "content" and of_position != (None, None, False):
        raise ValueError(
            f"{owner}: relations, table and position_bias belong to the position term, got terms={terms!r}"
        )
