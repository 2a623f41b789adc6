"""Vision Transformers: an image is a grid of patches, whose tokens any layer of the family mixes.

What a mixer sees depends on the pooling. With a class token there are n + 1 tokens in a row. That suits attention,
which ignores their order; a layer with windows or offsets would mistake the raster order of patches for their
positions. With mean pooling, tokens stay on their grid, (b, i, j, d), and mixers that have a version for maps see both
axes: a lambda layer has its table of 2-d offsets, axial attention its axes. The lambda ViTs therefore take the mean,
and because offsets tell them the relative positions of patches, they add no further positions by default. Mixers
without relative positions, and all mixers on rows of tokens, have learned positions.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.models.images import ImageClassifier, sized
from lambdanets.models.mixers import Mixer
from lambdanets.models.patches import ClassToken, make_patches, make_positions
from lambdanets.models.transformer import Transformer
from lambdanets.models.vit_config import ViTConfig
from lambdanets.nn.registry import Layout


class ViT(ImageClassifier):
    """An image classifier.

    >>> from lambdanets import create_model
    >>> model = create_model("lambda_vit_tiny", image_size=64, num_classes=10).eval()
    >>> model(torch.randn(2, 3, 64, 64)).shape
    torch.Size([2, 10])
    """

    config: ViTConfig

    def __init__(self, config: ViTConfig, *, mixer: Callable[..., nn.Module] | None = None) -> None:
        """`mixer` makes a layer on tokens from d and the options, instead of what the configuration names."""
        super().__init__()
        self.config = config
        self.custom_part = None if mixer is None else "mixer"
        self.layout: Layout = "tokens" if mixer is not None else config.layout
        self.patches = make_patches(config.stem, config.in_chans, config.d, config.patch)
        ahead = int(config.pool == "class")
        self.class_token = ClassToken(config.d) if ahead else None
        # Whether a custom mixer has relative positions is unknown.
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
            defaults={"h": config.h, "size": config.size},
            drop_path=config.drop_path,
            dropout=config.dropout,
            eps=1e-6,
        )
        self.num_features = config.d
        self.reset_classifier(config.num_classes)

    @classmethod
    def from_row(cls, name: str, row: ViTConfig, changes: Mapping[str, Any]) -> "ViT":
        mixer = changes.get("mixer", row.mixer)
        if not callable(mixer):
            return cls(row.with_changes(changes))
        others = {key: value for key, value in changes.items() if key != "mixer"}
        return cls(replace(row, **{"mixer_options": {}, **others}), mixer=mixer)

    def blocks(self) -> list[nn.Module]:
        return [*self.encoder.blocks]

    def forward_features(self, x: Float[Tensor, "b c i j"]) -> Float[Tensor, "b *n d"]:
        """Tokens after the last norm: the class token first, or all on their grid."""
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
        """Class scores of pooled features, or the pooled features."""
        pooled = x.flatten(1, -2).mean(1) if self.class_token is None else x[:, 0]
        y: Tensor = pooled if pre_logits else self.classifier(pooled)
        return y

    @property
    def global_pool(self) -> str:
        """How `forward_head` pools tokens: their mean, or the class token."""
        return "avg" if self.class_token is None else "token"

    def group_matcher(self, coarse: bool = False) -> dict[str, str]:
        """Regular expressions of parameter names, from input to output: timm groups and freezes layers by them."""
        return {"stem": r"^(?:patches|class_token|positions)", "blocks": r"^encoder\.blocks\.(\d+)"}

    def resize(self, image_size: int) -> None:
        """Resize positions and the tables of mixers for images of another size; create the optimiser afterwards."""
        if self.custom_part is not None:
            raise ValueError(
                "ViT: only a network that its configuration describes can be resized, this has its own mixer"
            )
        like = ViT.on_meta(replace(self.config, image_size=image_size))
        for own, other in zip(sized(self), sized(like), strict=True):
            own.resize(other.size)
        self.config = like.config
