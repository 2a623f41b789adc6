"""Mixup and CutMix; one of them is chosen at random for each batch."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from lambdanets.optional import import_torchvision


class Mixing:
    """Mixes images; labels become class probabilities. `mixup` and `cutmix` are Beta parameters; 0 turns them off."""

    def __init__(self, classes: int, mixup: float, cutmix: float) -> None:
        v2 = import_torchvision("torchvision.transforms.v2")
        self.transforms = []
        if mixup:
            self.transforms.append(v2.MixUp(alpha=mixup, num_classes=classes))
        if cutmix:
            self.transforms.append(v2.CutMix(alpha=cutmix, num_classes=classes))

    def __call__(
        self, images: Float[Tensor, "b c i j"], labels: Int64[Tensor, "b"]
    ) -> tuple[Float[Tensor, "b c i j"], Float[Tensor, "b k"]]:
        transform = self.transforms[int(torch.randint(len(self.transforms), ()))]
        mixed: tuple[Tensor, Tensor] = transform(images, labels)
        return mixed
