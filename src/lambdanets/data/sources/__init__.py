"""Where images come from. A source is a module with a function `offer`; it is imported when somebody names it."""

from importlib import import_module

from lambdanets.data.config import DataConfig
from lambdanets.data.sources.subset import Labelled, Offer, first, only_held_out, without_held_out
from lambdanets.data.splits import DataError, Split, SplitName, Stream
from lambdanets.fields import nearest

SOURCES = {
    "digits": "lambdanets.data.sources.digits",
    "folder": "lambdanets.data.sources.folder",
    "huggingface": "lambdanets.data.sources.huggingface",
    "idx": "lambdanets.data.sources.idx",
    "npz": "lambdanets.data.sources.npz",
    "torchvision": "lambdanets.data.sources.torchvision_sets",
    "webdataset": "lambdanets.data.sources.webdataset_shards",
}

__all__ = ["SOURCES", "check_source", "open_split"]


def check_source(config: DataConfig) -> None:
    if config.source not in SOURCES:
        hint = nearest(config.source, SOURCES)
        raise DataError(f"there is no data.source={config.source}, there are {', '.join(SOURCES)}{hint}")


def open_split(config: DataConfig, split: SplitName) -> Split | Stream:
    """The images to train with, or those to validate with.

    >>> train = open_split(DataConfig(source="digits", limit=100), "train")
    >>> len(train), train.example(0).read().shape
    (100, torch.Size([1, 8, 8]))
    """
    check_source(config)
    offer: Offer = import_module(SOURCES[config.source]).offer(config)
    if split == "val" and offer.val is not None:
        return offer.val()
    images = offer.train()
    if isinstance(images, Stream):
        if config.limit is not None:
            raise DataError(
                f"data.limit={config.limit} cannot be picked from a stream; for a short epoch say data.samples"
            )
        return images
    if offer.val is None:
        assert isinstance(images, Labelled)
        take = without_held_out if split == "train" else only_held_out
        images = take(images, config.holdout)
    return images if split == "val" or config.limit is None else first(images, config.limit)
