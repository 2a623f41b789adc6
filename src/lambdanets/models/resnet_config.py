"""Configurations of ResNets: fields, the named variants, and what a change of one field implies for others.

A placement has one character for each stage c2 to c5: C all convolutions, L all lambda layers, a digit N that many
lambda layers spread evenly over a stage of convolutions. Any other layer of the family can take their place.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from lambdanets.fields import fit_fields, with_tuples
from lambdanets.models.blocks import EXPANSION, Setup
from lambdanets.models.images import ImageConfig
from lambdanets.models.network import DEEPEST
from lambdanets.nn.arguments import at_most, positive, rate
from lambdanets.nn.lambda_options import Terms

# Fields that describe the lambda layers of a network; other layers have `layer_options`.
LAMBDA_FIELDS = frozenset({"k", "h", "u", "scope", "terms", "share_tables"})


@dataclass(frozen=True, kw_only=True)
class ResNetConfig(ImageConfig):
    """Everything that determines a network; `create_model` changes these fields."""

    blocks: tuple[int, int, int, int]  # of c2, c3, c4, c5
    placement: str = "CCCC"
    setup: Setup = "90"
    image_size: int = 224  # decides the size of embeddings; other sizes run too, unless a layer is global
    num_classes: int = 1000  # 0 for no classifier: the network returns pooled features
    in_chans: int = 3
    width: int = 64  # of the stem and of the middle layers of c2; it doubles with every further stage
    layer: str = "lambda"  # in the blocks marked L: a name of `list_layers`, or several, "convolution+squeeze"
    layer_options: dict[str, Any] = field(default_factory=dict, hash=False)  # lambda layers have the fields that follow
    k: int = 16
    h: int = 4
    u: int = 1
    scope: int | str | None = "auto"  # 23, or 7 when u > 1; None is global
    terms: Terms = "both"
    share_tables: bool = False  # among layers on maps of the same size
    se: bool = False  # squeeze-and-excitation: everywhere, or beside lambda layers in the c2 and c3 that have none
    se_ratio: int = 4
    drop_path: float = 0.0  # of the last block; it grows linearly with depth
    dropout: float = 0.0  # before the classifier

    def __post_init__(self) -> None:
        fit_fields(self)
        object.__setattr__(self, "layer_options", with_tuples(self.layer_options))
        for blocks in self.blocks:
            positive("ResNetConfig", blocks=blocks)
            at_most("ResNetConfig", DEEPEST, blocks=blocks)
        if not re.fullmatch("[CL0-9]{4}", str(self.placement)):
            raise ValueError(
                f"placement has one of C, L or a digit for each of the four stages, got placement={self.placement!r}"
            )
        for stage, (character, blocks) in enumerate(zip(self.placement, self.blocks, strict=True)):
            if character.isdigit() and int(character) > blocks:
                raise ValueError(
                    f"stage c{stage + 2} has {blocks} blocks, got placement={self.placement!r} with {character} of them"
                )
        positive("ResNetConfig", image_size=self.image_size, in_chans=self.in_chans)
        positive("ResNetConfig", width=self.width, se_ratio=self.se_ratio)
        if self.setup == "350" and self.width % 2:
            raise ValueError(f'the stem of setup "350" halves its width, got width={self.width}')
        rate("ResNetConfig", drop_path=self.drop_path, dropout=self.dropout)
        if self.se and self.se_ratio > EXPANSION * self.width:
            raise ValueError(f"se_ratio leaves no channels, got se_ratio={self.se_ratio}")
        if self.num_classes < 0:
            raise ValueError(f"num_classes must be at least 0, got num_classes={self.num_classes}")
        if self.layer != "lambda":
            for its in fields(self):
                if its.name in LAMBDA_FIELDS and getattr(self, its.name) != its.default:
                    raise ValueError(
                        f"{its.name} is for lambda layers, other layers have layer_options; "
                        f"got {its.name}={getattr(self, its.name)!r}, layer={self.layer!r}"
                    )
        if self.layer_options and self.is_convolutional:
            raise ValueError(
                f"layer_options are for the blocks marked L, of which placement={self.placement!r} has none, "
                f"got layer_options={self.layer_options}"
            )
        twice = sorted(self.layer_options.keys() & LAMBDA_FIELDS)
        if self.layer == "lambda" and twice:
            raise ValueError(
                f"lambda layers have fields of the configuration for {', '.join(twice)}, "
                f"got layer_options={self.layer_options}"
            )
        if isinstance(self.scope, str) and self.scope != "auto":
            raise ValueError(f'scope must be "auto", an odd number or None, got scope={self.scope!r}')

    @property
    def is_convolutional(self) -> bool:
        """Whether every block has a convolution."""
        return not set(self.placement) - {"C", "0"}

    @property
    def first_conv(self) -> str:
        return "stem.0" if self.setup == "small" else "stem.0.0"

    @property
    def lambda_scope(self) -> int | None:
        if self.scope == "auto":
            return 23 if self.u == 1 else 7
        assert not isinstance(self.scope, str)
        return self.scope

    def is_lambda(self, stage: int, block: int) -> bool:
        """Whether a block has a lambda layer. N of B are at blocks floor((j + 1) B / N) - 1.

        >>> hybrid = ResNetConfig(blocks=(3, 8, 36, 3), placement="CC6L")
        >>> [block for block in range(36) if hybrid.is_lambda(2, block)]
        [5, 11, 17, 23, 29, 35]
        """
        character, blocks = self.placement[stage], self.blocks[stage]
        if not character.isdigit():
            return character == "L"
        n = int(character)
        return block in {(j + 1) * blocks // n - 1 for j in range(n)}

    def has_se(self, stage: int, block: int) -> bool:
        return self.se and (self.is_convolutional or not (stage > 1 or self.is_lambda(stage, block)))

    def with_changes(self, changes: Mapping[str, Any]) -> "ResNetConfig":
        """With other values. A layer without a placement goes into all blocks, a setup brings its own defaults."""
        row = self
        if "layer" in changes and row.placement == "CCCC":
            row = replace(row, placement="LLLL")
        if changes.get("setup", row.setup) != row.setup:
            shape = {name: changes[name] for name in ("blocks", "placement") if name in changes}
            row = with_setup(replace(row, **shape), changes["setup"])
        return replace(row, **changes)

    @classmethod
    def excluded_by(cls, changes: Mapping[str, Any]) -> frozenset[str]:
        """What describes lambda layers, if another layer takes their place."""
        return frozenset() if changes.get("layer", "lambda") == "lambda" else LAMBDA_FIELDS

    def not_inherited(self, changes: Mapping[str, Any]) -> frozenset[str]:
        """Without lambda layers, what describes them; for small images the setup, which decides the stem."""
        is_convolutional = self.is_convolutional and not {"layer", "placement"} & changes.keys()
        lambda_fields = LAMBDA_FIELDS if is_convolutional else self.excluded_by(changes)
        return lambda_fields | ({"setup"} if self.setup == "small" else set())


# By depth: blocks of c2 to c5, lambda layers in c4 of the hybrid, image size of the 350-epoch setup.
DEPTHS: dict[int, tuple[tuple[int, int, int, int], int | None, int]] = {
    26: ((2, 2, 2, 2), None, 224),
    50: ((3, 4, 6, 3), None, 224),
    101: ((3, 4, 23, 3), 3, 224),
    152: ((3, 8, 36, 3), 6, 256),
    200: ((3, 24, 36, 3), 6, 256),
    270: ((4, 29, 53, 4), 6, 256),
    350: ((4, 36, 72, 4), 6, 288),
    420: ((4, 44, 87, 4), 8, 320),
}
# For images of 8 to 64 pixels.
SMALL = {14: (1, 1, 1, 1), 26: (2, 2, 2, 2)}


def _resnets() -> dict[str, ResNetConfig]:
    rows = {}
    for depth, (blocks, hybrid, size) in DEPTHS.items():
        rows[f"resnet{depth}"] = ResNetConfig(blocks=blocks)
        if hybrid is None:
            rows[f"lambda_resnet{depth}"] = ResNetConfig(blocks=blocks, placement="LLLL")
        else:
            row = ResNetConfig(blocks=blocks, placement=f"CC{hybrid}L", image_size=size)
            rows[f"lambda_resnet{depth}"] = with_setup(row, "350")
    for depth, blocks in SMALL.items():
        small = ResNetConfig(blocks=blocks, setup="small", image_size=32, num_classes=10)
        rows[f"resnet{depth}_small"] = small
        rows[f"lambda_resnet{depth}_small"] = replace(small, placement="LLLL")
    return rows


def with_setup(row: ResNetConfig, setup: Setup) -> ResNetConfig:
    """In another setup, with its image size, squeeze-and-excitation, dropout and drop path.

    Convolutional networks of the 350-epoch setup are published with and without squeeze-and-excitation: they have none.
    """
    if setup != "350":
        size = 32 if setup == "small" else 224
        return replace(row, setup=setup, image_size=size, se=False, dropout=0.0, drop_path=0.0)
    sizes = [size for blocks, _, size in DEPTHS.values() if blocks == row.blocks]
    return replace(
        row,
        setup=setup,
        image_size=sizes[0] if sizes else 224,
        se=not row.is_convolutional,
        dropout=0.3,
        drop_path=0.2 if sum(row.blocks) > sum(DEPTHS[200][0]) else 0.0,
    )


RESNETS: dict[str, ResNetConfig] = _resnets()
