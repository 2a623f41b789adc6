"""ResNets with any layer in the middle of their bottlenecks: convolutional ResNets, LambdaResNets, hybrids."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.models.blocks import EXPANSION, Bottleneck, make_stem
from lambdanets.models.images import ImageClassifier, sized
from lambdanets.models.middle import Lambda, Middle, Named, Place, check_options, convolution
from lambdanets.models.network import run_block
from lambdanets.models.resnet_config import LAMBDA_FIELDS, ResNetConfig
from lambdanets.nn import LambdaLayer2d


class ResNet(ImageClassifier):
    """An image classifier, or with its feature maps c2 to c5 a backbone.

    >>> from lambdanets import create_model
    >>> model = create_model("lambda_resnet26", image_size=64, num_classes=10).eval()
    >>> model(torch.randn(2, 3, 64, 64)).shape
    torch.Size([2, 10])
    >>> [tuple(c.shape[1:]) for c in model.feature_maps(torch.randn(2, 3, 64, 64))]
    [(256, 16, 16), (512, 8, 8), (1024, 4, 4), (2048, 2, 2)]
    """

    config: ResNetConfig

    def __init__(self, config: ResNetConfig, *, middle: Middle | None = None) -> None:
        """`middle` makes the layers of the blocks marked L instead of what the configuration names."""
        super().__init__()
        self.config = config
        self.custom_part = None if middle is None else "middle"
        self.stem = make_stem(config.setup, config.in_chans, config.width)
        marked = middle or make_middle(config)
        size, reduction, d = config.image_size, 1, config.width
        if config.setup != "small":
            size, reduction = half(half(size)), 4
        total, built = sum(config.blocks), 0
        stages: list[nn.Module] = []
        self.feature_info: list[dict[str, int | str]] = []  # of c2 to c5, for detectors, as in timm
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
        self.reset_classifier(config.num_classes)

    @classmethod
    def from_row(cls, name: str, row: ResNetConfig, changes: Mapping[str, Any]) -> "ResNet":
        values = {key: value for key, value in changes.items() if key != "middle"}
        middle = changes.get("middle")
        config = row.with_changes(values)
        refuse_unused(name, config, values, middle)
        return cls(config, middle=middle)

    def blocks(self) -> list[nn.Module]:
        return [block for stage in self.stages.children() for block in stage.children()]

    def feature_maps(self, x: Float[Tensor, "b c i j"]) -> list[Float[Tensor, "b _ _ _"]]:
        """c2 to c5."""
        x = self.stem(x)
        maps = []
        for stage in self.stages:
            assert isinstance(stage, nn.Sequential)
            for block in stage:
                x = run_block(self, block, x)
            maps.append(x)
        return maps

    def forward_features(self, x: Float[Tensor, "b c i j"]) -> Float[Tensor, "b _ _ _"]:
        """c5, before pooling."""
        return self.feature_maps(x)[-1]

    def forward_head(self, x: Float[Tensor, "b d i j"], pre_logits: bool = False) -> Float[Tensor, "b _"]:
        """Class scores of pooled features, or the pooled features."""
        pooled = self.dropout(x.mean((2, 3)))
        y: Tensor = pooled if pre_logits else self.classifier(pooled)
        return y

    def group_matcher(self, coarse: bool = False) -> dict[str, str]:
        """Regular expressions of parameter names, from input to output: timm groups and freezes layers by them."""
        return {"stem": r"^stem", "blocks": r"^stages\.(\d+)" if coarse else r"^stages\.(\d+)\.(\d+)"}

    def resize(self, image_size: int) -> None:
        """Resize the embeddings for images of another size; create the optimiser afterwards."""
        if self.custom_part is not None and sized(self):
            raise ValueError(
                f"only the `middle` that made its layers knows what they are like at image_size={image_size}: "
                f"resize each of them, or create the network again"
            )
        if self.custom_part is not None:
            self.config = replace(self.config, image_size=image_size)
            return
        like = ResNet.on_meta(replace(self.config, image_size=image_size))
        if len(sized(self)) != len(sized(like)):
            raise ValueError(
                f"layers on maps of the same size share a table, and at image_size={image_size} those are other layers "
                f"than at {self.config.image_size}: create the network again"
            )
        for own, other in zip(sized(self), sized(like), strict=True):
            own.resize(other.size)
        self.config = like.config


def half(size: int) -> int:
    """The size of a map after a stride of 2."""
    return (size + 1) // 2


def make_middle(config: ResNetConfig) -> Middle:
    """The callable that makes the layers of the blocks marked L."""
    if config.layer != "lambda":
        return Named(config.layer, config.layer_options)
    check_options("lambda", LambdaLayer2d, config.layer_options)
    own = {"k": config.k, "h": config.h, "u": config.u, "scope": config.lambda_scope, "terms": config.terms}
    return Lambda(share=config.share_tables, **{**own, **config.layer_options})


def refuse_unused(name: str, config: ResNetConfig, changes: Mapping[str, Any], middle: Middle | None) -> None:
    """Options of layers that the network does not have are errors, unless an explicit placement has none."""
    requested = {field: value for field, value in changes.items() if field in LAMBDA_FIELDS}
    shown = ", ".join(f"{field}={value!r}" for field, value in requested.items())
    if requested and middle is not None:
        raise ValueError(f"{name}: lambda layers take {shown}, but middle makes the layers here")
    if middle is not None and (not callable(middle) or changes.keys() & {"layer", "layer_options"}):
        raise ValueError(f"{name}: middle must make a layer from its place, without `layer` beside it, got {middle!r}")
    if config.is_convolutional and "placement" not in changes and (requested or middle is not None):
        raise ValueError(
            f"{name} has convolutions only, which do not take {shown or 'a middle'}; "
            f'placement="LLLL" has other layers in all blocks'
        )
