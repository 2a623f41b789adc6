"""Configurations of Vision Transformers: fields, the named variants, and what a change of one field implies."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from lambdanets.fields import fit_fields, with_tuples
from lambdanets.models.images import ImageConfig
from lambdanets.models.network import DEEPEST
from lambdanets.models.patches import GridPositions, PatchStem
from lambdanets.nn.arguments import at_most, positive, rate
from lambdanets.nn.registry import Layout, knows_places, list_layers

Pool = Literal["class", "mean"]


@dataclass(frozen=True, kw_only=True)
class ViTConfig(ImageConfig):
    """Everything that determines a network; `create_model` changes these fields."""

    d: int  # channels of a token
    depth: int
    h: int  # heads of the mixers that have them
    patch: int = 16  # its side in pixels
    image_size: int = 224  # decides the positions; other multiples of the patch run unless positions are learned
    num_classes: int = 1000  # 0 for no classifier: the network returns pooled features
    in_chans: int = 3
    ratio: int = 4  # hidden channels of the feed-forward networks, relative to d
    mixer: str = "attention"  # a layer of `lambdanets.nn.registry`
    mixer_options: dict[str, Any] = field(default_factory=dict, hash=False)
    stem: PatchStem = "linear"
    pool: Pool = "class"
    positions: GridPositions | None = None  # added to the tokens; None: learned, unless the mixer has relative ones
    drop_path: float = 0.0  # of the last block; it grows linearly with depth
    dropout: float = 0.0  # after the positions, in the feed-forward networks, and of every residual
    pools: ClassVar[Mapping[str, str]] = {"token": "class", "avg": "mean"}

    def __post_init__(self) -> None:
        owner = type(self).__name__
        fit_fields(self)
        object.__setattr__(self, "mixer_options", with_tuples(self.mixer_options))
        positive(owner, d=self.d, depth=self.depth, h=self.h, patch=self.patch, ratio=self.ratio)
        at_most(owner, DEEPEST, depth=self.depth)
        positive(owner, image_size=self.image_size, in_chans=self.in_chans)
        if self.image_size % self.patch:
            raise ValueError(
                f"{owner}: image_size must be a multiple of patch, got image_size={self.image_size}, patch={self.patch}"
            )
        rate(owner, drop_path=self.drop_path, dropout=self.dropout)
        if self.num_classes < 0:
            raise ValueError(f"{owner}: num_classes must be at least 0, got num_classes={self.num_classes}")
        if self.positions == "sinusoidal" and self.d % 2:
            raise ValueError(f"{owner}: sinusoidal positions halve the channels, got d={self.d}")
        if self.stem == "conv" and (self.patch < 2 or self.patch & (self.patch - 1) or self.d < self.patch):
            raise ValueError(
                f'{owner}: stem="conv" halves the image until a patch is one position, and its channels from d: '
                f"patch must be a power of 2 and at most d, got patch={self.patch}, d={self.d}"
            )

    @property
    def grid(self) -> tuple[int, int]:
        side = self.image_size // self.patch
        return side, side

    @property
    def layout(self) -> Layout:
        """Whether mixers see tokens in a row, or maps with both axes."""
        return "maps" if self.pool == "mean" and self.mixer in list_layers("maps") else "tokens"

    @property
    def added_positions(self) -> GridPositions:
        """The requested positions, or those that the mixer needs."""
        if self.positions is not None:
            return self.positions
        return "none" if self.layout == "maps" and knows_places(self.mixer, self.mixer_options) else "learned"

    @property
    def size(self) -> int | tuple[int, int]:
        """The number of tokens, or the grid that they are on."""
        i, j = self.grid
        return (i, j) if self.layout == "maps" else i * j + (self.pool == "class")

    @property
    def first_conv(self) -> str:
        return "patches" if self.stem == "linear" else "patches.0.0"

    def with_changes(self, changes: Mapping[str, Any]) -> "ViTConfig":
        """With other values. Another mixer brings its own defaults, see `with_mixer`."""
        return replace(with_mixer(self, changes.get("mixer", self.mixer)), **changes)


# Channels, blocks and heads; the second table is for images of 8 to 64 pixels.
VIT_SIZES = {"tiny": (192, 12, 3), "small": (384, 12, 6), "base": (768, 12, 12)}
SMALL_VIT_SIZES = {"micro": (96, 6, 3), "tiny": (192, 6, 3)}
PUBLISHED_ATTENTION = {"bias": True, "positions": "none"}


def _vits() -> dict[str, ViTConfig]:
    small: dict[str, Any] = {"patch": 4, "image_size": 32, "num_classes": 10}
    rows = {}
    for suffix, sizes, changes in (("", VIT_SIZES, {}), ("_small", SMALL_VIT_SIZES, small)):
        for name, (d, depth, h) in sizes.items():
            row = ViTConfig(d=d, depth=depth, h=h, mixer_options=PUBLISHED_ATTENTION, **changes)
            rows[f"vit_{name}{suffix}"] = row
            rows[f"lambda_vit_{name}{suffix}"] = replace(with_mixer(row, "lambda"), h=4)
    return rows


def with_mixer(row: ViTConfig, mixer: str) -> ViTConfig:
    """With another mixer by default: without the options of the old one, and on the grid, where it sees both axes."""
    return row if mixer == row.mixer else replace(row, mixer=mixer, mixer_options={}, pool="mean")


VITS: dict[str, ViTConfig] = _vits()
