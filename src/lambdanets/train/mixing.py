"""Batches whose images are mixed with one another: mixup and cutmix, one of them at random for each batch."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from lambdanets.optional import import_torchvision


class Mixing:
    """Labels become shares; `mixup` and `cutmix` are the alphas of their Beta distributions, 0 for neither."""

    def __init__(self, classes: int, mixup: float, cutmix: float) -> None:
        v2 = import_torchvision("torchvision.transforms.v2")
        self.ways = []
        if mixup:
            self.ways.append(v2.MixUp(alpha=mixup, num_classes=classes))
        if cutmix:
            self.ways.append(v2.CutMix(alpha=cutmix, num_classes=classes))

    def __call__(
        self, images: Float[Tensor, "b c i j"], labels: Int64[Tensor, "b"]
    ) -> tuple[Float[Tensor, "b c i j"], Float[Tensor, "b k"]]:
        way = self.ways[int(torch.randint(len(self.ways), ()))]
        mixed: tuple[Tensor, Tensor] = way(images, labels)
        return mixed
