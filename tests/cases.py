"""The registry that tests sweep: every layer class in every kind of configuration, with inputs that fit it.

Sizes are distinct primes where they can be, so that swapped axes cannot pass.
"""

import math
from dataclasses import dataclass, field

import torch

from lambdanets import LambdaLayer1d, LambdaLayer2d, LambdaLayer3d, LambdaMixer

GRIDS = {LambdaLayer1d: (11,), LambdaMixer: (11,), LambdaLayer2d: (5, 7), LambdaLayer3d: (3, 5, 4)}
CLASSES = list(GRIDS)
WIDTH, OUT = 13, 10
BASE = {"d_in": WIDTH, "d_out": OUT, "k": 7, "h": 2, "scope": 3}

# What changes against BASE, and what forward gets beside x.
VARIANTS = {
    "local": {},
    "wide": {"scope": 31},
    "global": {"scope": None, "size": "grid"},
    "strided": {"stride": 2, "dilation": 2},
    "deep": {"u": 2, "position_bias": True},
    "content": {"terms": "content", "key_norm": "l2"},
    "position": {"terms": "position", "norm": "none", "table_std": 0.5},
    "plain keys": {"key_norm": "none", "norm": "rms"},
    "causal": {"causal": True},
    "strict": {"causal": "strict", "u": 2},
    "causal l2": {"causal": True, "key_norm": "l2", "norm": "none"},
    "relation": {"relations": 13, "relation": True},
    "causal relation": {"relations": 13, "relation": True, "causal": True},
    "padding": {"mask": "rows"},
    "masked": {"mask": "pairs"},
    "causal padding": {"mask": "rows", "causal": True},
    "cross": {"d_context": 4, "context": True},
    "cross masked": {"d_context": 4, "context": True, "mask": "pairs", "norm": "rms"},
}


@dataclass
class LayerCase:
    layer: type
    variant: str
    arguments: dict = field(init=False)
    forward: dict = field(init=False)
    grid: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.grid = self.first_grid()
        settings = BASE | VARIANTS[self.variant]
        self.forward = {name: settings.pop(name, None) for name in ("context", "mask", "relation")}
        if settings.get("size") == "grid":
            settings["size"] = tuple(n + 1 for n in self.grid)
        self.arguments = settings

    def first_grid(self) -> tuple[int, ...]:
        return GRIDS[self.layer]

    @property
    def context_grid(self) -> tuple[int, ...]:
        return tuple(n + 2 for n in self.grid) if self.forward["context"] else self.grid

    def __str__(self) -> str:
        return f"{self.layer.__name__}-{self.variant}"

    def build(self) -> torch.nn.Module:
        torch.manual_seed(0)
        return self.layer(**self.arguments)

    def oracle(self) -> dict:
        """What `reference.lambda_layer` needs to know of the layer, from the arguments alone."""
        a = {
            "u": 1,
            "stride": 1,
            "dilation": 1,
            "terms": "both",
            "key_norm": "softmax",
            "causal": False,
        } | self.arguments
        every = (1,) * len(self.grid)
        scope = tuple(2 * s - 1 for s in a["size"]) if a["scope"] is None else tuple(a["scope"] * i for i in every)
        return {
            "k": a["k"],
            "h": a["h"],
            "u": a["u"],
            "scope": scope,
            "stride": tuple(a["stride"] * i for i in every),
            "dilation": tuple(a["dilation"] * i for i in every),
            "terms": a["terms"],
            "key_norm": a["key_norm"],
            "norm": a.get("norm", "rms" if a["causal"] else "batch"),
            "causal": a["causal"],
        }

    def map(self, b: int, d: int, grid: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(b, *grid, d) if self.layer is LambdaMixer else torch.randn(b, d, *grid)

    def inputs(self, b: int = 3) -> tuple[torch.Tensor, dict]:
        """x and the keyword arguments of forward."""
        torch.manual_seed(1)
        stride = self.arguments.get("stride", 1)
        n, m = math.prod(len(range(0, g, stride)) for g in self.grid), math.prod(self.context_grid)
        options = {}
        if self.forward["context"]:
            options["context"] = self.map(b, self.arguments["d_context"], self.context_grid)
        if self.forward["mask"]:
            options["mask"] = torch.rand((b, 1, m) if self.forward["mask"] == "rows" else (b, n, m)) < 0.8
        if self.forward["relation"]:
            options["relation"] = torch.randint(self.arguments["relations"], (n, m))
        return self.map(b, WIDTH, self.grid), options


CASES = [LayerCase(layer, variant) for layer in CLASSES for variant in VARIANTS]
IDS = [str(case) for case in CASES]
