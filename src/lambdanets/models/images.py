"""Image classifiers: what their configurations declare, and the head behind their features, named as in timm."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.models.network import Network, NetworkConfig
from lambdanets.nn.arguments import per_axis
from lambdanets.nn.decay import tables_without_decay


class ImageConfig(NetworkConfig):
    """Base of configurations of image classifiers, which are offered to timm."""

    image_size: int
    num_classes: int  # 0 for no classifier: the network returns pooled features
    in_chans: int
    # What timm calls the ways to pool, with the values of the field `pool`; only the mean for a family without it.
    pools: ClassVar[Mapping[str, str]] = {}

    @property
    def first_conv(self) -> str:
        """Name of the convolution that sees the image; timm adapts it to other numbers of channels."""
        raise NotImplementedError


class ImageClassifier(Network):
    """A network with a head that can be replaced.

    A subclass has `config`, an `ImageConfig`, `num_features`, `forward_features` and `forward_head`.
    """

    config: Any
    num_features: int
    hub_tags = ("image-classification",)

    def forward_features(self, x: Float[Tensor, "b c i j"]) -> Float[Tensor, "b ..."]:
        raise NotImplementedError

    def forward_head(self, x: Float[Tensor, "b ..."], pre_logits: bool = False) -> Float[Tensor, "b _"]:
        """Class scores of pooled features, or the pooled features."""
        raise NotImplementedError

    def forward(self, x: Float[Tensor, "b c i j"]) -> Float[Tensor, "b _"]:
        return self.forward_head(self.forward_features(x))

    def example_inputs(self, b: int, size: int | tuple[int, ...] | None = None) -> tuple[Tensor, ...]:
        """Images, of the configuration's size by default."""
        i, j = per_axis(type(self).__name__, 2, size=self.config.image_size if size is None else size)
        like = next(self.parameters())
        return (torch.randn(b, self.config.in_chans, i, j, dtype=like.dtype, device=like.device),)

    @property
    def num_classes(self) -> int:
        classes: int = self.config.num_classes
        return classes

    @property
    def head_hidden_size(self) -> int:
        """Channels that the classifier sees."""
        return self.num_features

    @property
    def global_pool(self) -> str:
        """How `forward_head` pools features: their mean."""
        return "avg"

    def get_classifier(self) -> nn.Module:
        return self.classifier

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Replace the head by a new one for `num_classes`; 0 removes it. The pooling cannot be changed."""
        if global_pool not in (None, self.global_pool):
            raise ValueError(
                f"{type(self).__name__}: the pool stays {self.global_pool!r}, got global_pool={global_pool!r}; "
                f"forward_features does not pool"
            )
        self.config = replace(self.config, num_classes=num_classes)
        like = next(self.parameters())
        head = nn.Linear(self.num_features, num_classes) if num_classes else nn.Identity()
        self.classifier = head.to(like.device, like.dtype).train(self.training)

    def no_weight_decay(self) -> set[str]:
        """Names of matrices that timm's optimisers must not decay, the same as ours."""
        return tables_without_decay(self)


def sized(model: nn.Module) -> list[Any]:
    """The modules whose parameters depend on the size of maps."""
    return [m for m in model.modules() if hasattr(m, "resize") and getattr(m, "size", None) is not None]
