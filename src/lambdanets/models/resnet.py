"""ResNets whose bottlenecks have any layer in the middle: convolutional, LambdaResNets, hybrids.

A placement has one character for each stage c2 to c5: C all convolutions, L all lambda layers, a digit N that many
lambda layers spread evenly over a stage of convolutions. Any other layer of the family can stand where these do.
"""

import re
from dataclasses import dataclass, field, fields, replace
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.fields import fit_fields, with_tuples
from lambdanets.models.blocks import EXPANSION, Bottleneck, Setup, make_stem
from lambdanets.models.checkpointing import checkpointed
from lambdanets.models.classifying import DEEPEST, Classifying, sized
from lambdanets.models.middle import Lambda, Middle, Named, Place, check_options, convolution
from lambdanets.models.pretrained import Pretrained
from lambdanets.nn import LambdaLayer2d
from lambdanets.nn.arguments import at_most, positive, rate
from lambdanets.nn.lambda_options import Terms

# Fields of a network that say what its lambda layers are like.
OF_LAMBDA_LAYERS = ("k", "h", "u", "scope", "terms", "share_tables")


@dataclass(frozen=True, kw_only=True)
class ResNetConfig:
    """Everything that determines a network; `create_model` changes these fields."""

    blocks: tuple[int, int, int, int]  # of c2, c3, c4, c5
    placement: str = "CCCC"
    setup: Setup = "90"
    image_size: int = 224  # the maps at which embeddings are cut; other sizes run too, unless a layer has but these
    num_classes: int = 1000  # 0 for none: the network then answers with pooled features
    in_chans: int = 3
    width: int = 64  # of the stem and of the middle layers of c2; each further stage has twice that of the one before
    layer: str = "lambda"  # in the blocks marked L: a name of `list_layers`, or several, "convolution+squeeze"
    layer_options: dict[str, Any] = field(default_factory=dict, hash=False)  # those of lambda layers follow
    k: int = 16
    h: int = 4
    u: int = 1
    scope: int | str | None = "auto"  # 23, or 7 when u > 1; None is global
    terms: Terms = "both"
    share_tables: bool = False  # among the layers that see maps of one size
    se: bool = False  # squeeze-and-excitation: everywhere, or beside lambda layers in the c2 and c3 that have none
    se_ratio: int = 4
    drop_path: float = 0.0  # of the last block; it grows with depth
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
                if its.name in OF_LAMBDA_LAYERS and getattr(self, its.name) != its.default:
                    raise ValueError(
                        f"{its.name} is for lambda layers, other layers have layer_options; "
                        f"got {its.name}={getattr(self, its.name)!r}, layer={self.layer!r}"
                    )
        if self.layer_options and self.is_convolutional:
            raise ValueError(
                f"layer_options are for the blocks marked L, of which placement={self.placement!r} has none, "
                f"got layer_options={self.layer_options}"
            )
        twice = sorted(self.layer_options.keys() & {*OF_LAMBDA_LAYERS})
        if self.layer == "lambda" and twice:
            raise ValueError(f"fields of their own say {', '.join(twice)}, got layer_options={self.layer_options}")
        if isinstance(self.scope, str) and self.scope != "auto":
            raise ValueError(f'scope must be "auto", an odd number or None, got scope={self.scope!r}')

    @property
    def is_convolutional(self) -> bool:
        """No block is marked for another layer."""
        return not set(self.placement) - {"C", "0"}

    @property
    def lambda_scope(self) -> int | None:
        if self.scope == "auto":
            return 23 if self.u == 1 else 7
        assert not isinstance(self.scope, str)
        return self.scope

    def is_lambda(self, stage: int, block: int) -> bool:
        """Does a block have a lambda layer? N of B stand at blocks floor((j + 1) B / N) - 1.

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


class ResNet(Classifying, Pretrained):
    """A classifier of images, or of its feature maps c2 to c5 a backbone.

    >>> from lambdanets import create_model
    >>> model = create_model("lambda_resnet26", image_size=64, num_classes=10).eval()
    >>> model(torch.randn(2, 3, 64, 64)).shape
    torch.Size([2, 10])
    >>> [tuple(c.shape[1:]) for c in model.feature_maps(torch.randn(2, 3, 64, 64))]
    [(256, 16, 16), (512, 8, 8), (1024, 4, 4), (2048, 2, 2)]
    """

    config: ResNetConfig

    def __init__(self, config: ResNetConfig, *, middle: Middle | None = None) -> None:
        """`middle` makes the layers of the blocks that are marked L; lambda layers by default."""
        super().__init__()
        self.config = config
        self.has_own_middle = middle is not None
        self.stem = make_stem(config.setup, config.in_chans, config.width)
        marked = middle or make_middle(config)
        size, reduction, d = config.image_size, 1, config.width
        if config.setup != "small":
            size, reduction = half(half(size)), 4
        total, built = sum(config.blocks), 0
        stages: list[nn.Module] = []
        self.feature_info: list[dict[str, int | str]] = []  # what detectors ask about c2 to c5, as timm names it
        for stage, blocks in enumerate(config.blocks):
            width, made = config.width << stage, []
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                place = Place(width, stride, (size, size), stage, block)
                made.append(
                    Bottleneck(
                        d,
                        place,
                        marked if config.is_lambda(stage, block) else convolution,
                        setup=config.setup,
                        se_ratio=config.se_ratio if config.has_se(stage, block) else None,
                        drop_path=config.drop_path * built / max(total - 1, 1),
                    )
                )
                built += 1
                size, reduction, d = half(size) if stride == 2 else size, reduction * stride, EXPANSION * width
            stages.append(nn.Sequential(*made))
            self.feature_info.append({"num_chs": d, "reduction": reduction, "module": f"stages.{stage}"})
        self.stages = nn.Sequential(*stages)
        self.num_features = d
        self.dropout = nn.Dropout(config.dropout)
        self.checkpointing = False
        self.reset_classifier(config.num_classes)

    def feature_maps(self, x: Float[Tensor, "b c i j"]) -> list[Float[Tensor, "b _ _ _"]]:
        """c2 to c5."""
        x = self.stem(x)
        maps = []
        for stage in self.stages:
            assert isinstance(stage, nn.Sequential)
            for block in stage:
                x = checkpointed(block, x) if self.checkpointing and self.training else block(x)
            maps.append(x)
        return maps

    def forward_features(self, x: Float[Tensor, "b c i j"]) -> Float[Tensor, "b _ _ _"]:
        """c5; this and what follows are named as timm names them."""
        return self.feature_maps(x)[-1]

    def forward_head(self, x: Float[Tensor, "b d i j"], pre_logits: bool = False) -> Float[Tensor, "b _"]:
        """Classes of pooled features, or these themselves."""
        pooled = self.dropout(x.mean((2, 3)))
        y: Tensor = pooled if pre_logits else self.classifier(pooled)
        return y

    def group_matcher(self, coarse: bool = False) -> dict[str, str]:
        """Patterns of names, from the image to the classes: timm lowers learning rates and freezes by them."""
        return {"stem": r"^stem", "blocks": r"^stages\.(\d+)" if coarse else r"^stages\.(\d+)\.(\d+)"}

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Keep only the inputs of blocks while training, and compute the rest again in the backward pass."""
        self.checkpointing = enable

    def resize(self, image_size: int) -> None:
        """Fit the embeddings to images of another size; make the optimiser afterwards."""
        if self.has_own_middle and sized(self):
            raise ValueError(
                f"only the `middle` that made its layers knows what they are like at image_size={image_size}: "
                f"resize each of them, or create the network again"
            )
        if self.has_own_middle:
            self.config = replace(self.config, image_size=image_size)
            return
        like = ResNet.on_meta(replace(self.config, image_size=image_size))
        if len(sized(self)) != len(sized(like)):
            raise ValueError(
                f"layers that see maps of one size share a table, and at image_size={image_size} others do than at "
                f"{self.config.image_size}: create the network again"
            )
        for own, other in zip(sized(self), sized(like), strict=True):
            own.resize(other.size)
        self.config = like.config


def half(size: int) -> int:
    """Of a map, behind a stride of 2."""
    return (size + 1) // 2


def make_middle(config: ResNetConfig) -> Middle:
    """What makes the layers of the blocks that are marked L."""
    if config.layer != "lambda":
        return Named(config.layer, config.layer_options)
    check_options("lambda", LambdaLayer2d, config.layer_options)
    own = {"k": config.k, "h": config.h, "u": config.u, "scope": config.lambda_scope, "terms": config.terms}
    return Lambda(share=config.share_tables, **{**own, **config.layer_options})
