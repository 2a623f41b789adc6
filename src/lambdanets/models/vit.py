"""Vision Transformers: an image is a grid of patches, and any layer of the family lets them read each other.

What a mixer sees depends on who is pooled. With a class token there are n + 1 tokens in a row, and mixers stand on
tokens: right for attention, which knows no order, while a layer with windows or offsets would take the raster order of
patches for their place. With the mean, tokens stay on their grid, (b, i, j, d), and mixers that have a layout for maps
use it: a lambda layer has its table of 2-d offsets, axial attention its axes. So the lambda ViTs take the mean,
and as offsets tell them where patches stand to each other, they have no further positions unless they are asked for.
Mixers that know no places, and all that stand on tokens, have learned positions.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.fields import fit_fields, with_tuples
from lambdanets.models.classifying import DEEPEST, Classifying, sized
from lambdanets.models.mixers import Mixer
from lambdanets.models.patches import ClassToken, GridPositions, PatchStem, make_patches, make_positions
from lambdanets.models.pretrained import Pretrained
from lambdanets.models.transformer import Transformer
from lambdanets.nn.arguments import at_most, positive, rate
from lambdanets.nn.registry import Layout, knows_places, list_layers

Pool = Literal["class", "mean"]


@dataclass(frozen=True, kw_only=True)
class ViTConfig:
    """Everything that determines a network; `create_model` changes these fields."""

    d: int  # channels of a token
    depth: int
    h: int  # heads of the mixers that have them
    patch: int = 16  # its side in pixels
    image_size: int = 224  # decides the positions; other multiples of the patch run where those are not learned
    num_classes: int = 1000  # 0 for none: the network then answers with pooled features
    in_chans: int = 3
    ratio: int = 4  # of the channels inside the feed-forward networks to d
    mixer: str = "attention"  # a layer of `lambdanets.nn.registry`
    mixer_options: dict[str, Any] = field(default_factory=dict, hash=False)
    stem: PatchStem = "linear"
    pool: Pool = "class"
    positions: GridPositions | None = None  # added to the tokens; None for learned ones if the mixer knows no places
    drop_path: float = 0.0  # of the last block; it grows with depth
    dropout: float = 0.0  # behind the positions, in the feed-forward networks, of all that blocks add

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
        """The layout of its mixers."""
        return "maps" if self.pool == "mean" and self.mixer in list_layers("maps") else "tokens"

    @property
    def added_positions(self) -> GridPositions:
        """The positions asked for, or those that its mixer needs."""
        if self.positions is not None:
            return self.positions
        return "none" if self.layout == "maps" and knows_places(self.mixer, self.mixer_options) else "learned"

    @property
    def size(self) -> int | tuple[int, int]:
        """What mixers are told of the number of tokens."""
        i, j = self.grid
        return (i, j) if self.layout == "maps" else i * j + (self.pool == "class")


class ViT(Classifying, Pretrained):
    """A classifier of images.

    >>> from lambdanets import create_model
    >>> model = create_model("lambda_vit_tiny", image_size=64, num_classes=10).eval()
    >>> model(torch.randn(2, 3, 64, 64)).shape
    torch.Size([2, 10])
    """

    config: ViTConfig

    def __init__(self, config: ViTConfig, *, mixer: Callable[..., nn.Module] | None = None) -> None:
        """`mixer` makes a layer on tokens from d and the options instead of that which the configuration names."""
        super().__init__()
        self.config = config
        self.has_own_mixer = mixer is not None
        self.layout: Layout = "tokens" if mixer is not None else config.layout
        self.patches = make_patches(config.stem, config.in_chans, config.d, config.patch)
        ahead = int(config.pool == "class")
        self.class_token = ClassToken(config.d) if ahead else None
        # Nobody knows what a mixer of one's own knows.
        kind = config.added_positions if mixer is None else config.positions or "learned"
        self.positions = make_positions(kind, config.d, config.grid, ahead)
        self.dropout = nn.Dropout(config.dropout)
        chosen: Mixer = config.mixer if mixer is None else mixer
        self.encoder = Transformer(
            config.d,
            config.depth,
            hidden=config.ratio * config.d,
            mixer=chosen,
            mixer_options=config.mixer_options,
            layout=self.layout,
            facts={"h": config.h, "size": config.size},
            drop_path=config.drop_path,
            dropout=config.dropout,
            eps=1e-6,
        )
        self.num_features = config.d
        self.reset_classifier(config.num_classes)

    def forward_features(self, x: Float[Tensor, "b c i j"]) -> Float[Tensor, "b *n d"]:
        """Tokens behind the last norm, the class token first or on their grid; named as timm names it."""
        patch, c = self.config.patch, self.config.in_chans
        if x.ndim != 4 or x.shape[1] != c:
            raise ValueError(f"ViT: images must be (b, {c}, height, width), got shape {tuple(x.shape)}")
        if x.shape[2] % patch or x.shape[3] % patch:
            raise ValueError(f"ViT: sides of images must be multiples of patch={patch}, got shape {tuple(x.shape)}")
        maps = self.patches(x)
        grid = (maps.shape[2], maps.shape[3])
        tokens = maps.flatten(2).transpose(1, 2)
        if self.class_token is not None:
            tokens = self.class_token(tokens)
        if self.positions is not None:
            tokens = self.positions(tokens, grid)
        tokens = self.dropout(tokens)
        y: Tensor = self.encoder(tokens.unflatten(1, grid) if self.layout == "maps" else tokens)
        return y

    def forward_head(self, x: Float[Tensor, "b *n d"], pre_logits: bool = False) -> Float[Tensor, "b _"]:
        """Classes of pooled features, or these themselves."""
        pooled = x.flatten(1, -2).mean(1) if self.class_token is None else x[:, 0]
        y: Tensor = pooled if pre_logits else self.classifier(pooled)
        return y

    @property
    def global_pool(self) -> str:
        """What `forward_head` takes of the tokens: their mean, or the class token alone."""
        return "avg" if self.class_token is None else "token"

    def group_matcher(self, coarse: bool = False) -> dict[str, str]:
        """Patterns of names, from the image to the classes: timm lowers learning rates and freezes by them."""
        return {"stem": r"^(?:patches|class_token|positions)", "blocks": r"^encoder\.blocks\.(\d+)"}

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Keep only the inputs of blocks while training, and compute the rest again in the backward pass."""
        self.encoder.set_grad_checkpointing(enable)

    def resize(self, image_size: int) -> None:
        """Fit positions and the tables of mixers to images of another size; make the optimiser afterwards."""
        if self.has_own_mixer:
            raise ValueError("ViT: only what the configuration describes can be resized, this one has its own mixer")
        like = ViT.on_meta(replace(self.config, image_size=image_size))
        for own, other in zip(sized(self), sized(like), strict=True):
            own.resize(other.size)
        self.config = like.config
