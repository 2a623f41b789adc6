"""What every network for images has behind its features, named as timm names it."""

from dataclasses import replace
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.nn.decay import tables_without_decay

N = TypeVar("N")
DEEPEST = 1000  # blocks: a file that asks for a billion would take for ever before anything else is wrong with it


class Classifying(nn.Module):
    """A head that can be replaced. A subclass has `config`, `num_features`, `forward_features` and `forward_head`."""

    config: Any
    num_features: int

    def forward_features(self, x: Float[Tensor, "b c i j"]) -> Float[Tensor, "b ..."]:
        raise NotImplementedError

    def forward_head(self, x: Float[Tensor, "b ..."], pre_logits: bool = False) -> Float[Tensor, "b _"]:
        """Classes of pooled features, or these themselves."""
        raise NotImplementedError

    def forward(self, x: Float[Tensor, "b c i j"]) -> Float[Tensor, "b _"]:
        return self.forward_head(self.forward_features(x))

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
        """What `forward_head` makes of a map: its mean."""
        return "avg"

    def get_classifier(self) -> nn.Module:
        return self.classifier

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """A new head for so many classes; none for 0. The pool, which timm names too, stays what it is."""
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
        """Names of matrices that timm's optimisers are to leave alone, as ours do."""
        return tables_without_decay(self)

    @classmethod
    def on_meta(cls: type[N], config: Any, **options: Any) -> N:
        """The network without memory: what it would have, not what it holds."""
        with torch.device("meta"):
            return cls(config, **options)  # type: ignore[call-arg]  # as a subclass has it


def sized(model: nn.Module) -> list[Any]:
    """The parts whose parameters depend on the size of maps."""
    return [m for m in model.modules() if hasattr(m, "resize") and getattr(m, "size", None) is not None]
