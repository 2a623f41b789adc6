"""Sources of images. A source is a module with a function `offer`, imported when it is selected."""

from importlib import import_module

from lambdanets.data.images.config import ImageDataConfig
from lambdanets.data.images.labelled import (
    ImageSplit,
    ImageStream,
    ImageSubset,
    Labelled,
    Offer,
    only_held_out,
    without_held_out,
)
from lambdanets.data.splits import DataError, SplitName, fixed_shuffle
from lambdanets.fields import nearest

SOURCES = {
    "digits": "lambdanets.data.images.sources.digits",
    "folder": "lambdanets.data.images.sources.folder",
    "huggingface": "lambdanets.data.images.sources.huggingface",
    "idx": "lambdanets.data.images.sources.idx",
    "npz": "lambdanets.data.images.sources.npz",
    "torchvision": "lambdanets.data.images.sources.torchvision_sets",
    "webdataset": "lambdanets.data.images.sources.webdataset_shards",
}

__all__ = ["SOURCES", "check_source", "open_split"]


def check_source(config: ImageDataConfig) -> None:
    if config.source not in SOURCES:
        hint = nearest(config.source, SOURCES)
        raise DataError(f"unknown data.source={config.source}; choose from {', '.join(SOURCES)}{hint}")


def open_split(config: ImageDataConfig, split: SplitName) -> ImageSplit | ImageStream:
    """Open the training or the validation images.

    >>> train = open_split(ImageDataConfig(source="digits", limit=100), "train")
    >>> len(train), train.item(0).read().image.shape
    (100, torch.Size([1, 8, 8]))
    """
    check_source(config)
    offer: Offer = import_module(SOURCES[config.source]).offer(config)
    if split == "val" and offer.val is not None:
        return offer.val()
    images = offer.train()
    if isinstance(images, ImageStream):
        if config.limit is not None:
            raise DataError(
                f"data.limit={config.limit} does not work with a stream; set data.samples for a short epoch"
            )
        return images
    if offer.val is None:
        assert isinstance(images, Labelled)
        take = without_held_out if split == "train" else only_held_out
        images = take(images, config.holdout)
    if split == "val" or config.limit is None:
        return images
    return ImageSubset(images, fixed_shuffle(len(images))[: config.limit])
