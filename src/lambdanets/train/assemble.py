"""From a configuration to what Lightning trains: data, network, loaders."""

from collections.abc import Sized
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch import nn

from lambdanets.data import Batch, Loader, Opened, Place, Share
from lambdanets.data.sources import check_source
from lambdanets.models import create_model
from lambdanets.train.classifier import Classifier
from lambdanets.train.config import ConfigError, RunConfig
from lambdanets.train.in_step import InStep
from lambdanets.train.mixing import Mixing
from lambdanets.train.networks import on_meta
from lambdanets.train.prepare import Prepare
from lambdanets.train.schedule import planned_steps

FROM_DATA = ("num_classes", "in_chans")


def planned(config: RunConfig) -> RunConfig:
    """With every field of the network but those that the data decides, which is not looked at."""
    check_source(config.data)
    network = network_of(config, {})
    fields = {k: v for k, v in asdict(network).items() if k not in FROM_DATA or k in config.model.changes}
    size = config.data.image_size or network.image_size
    return replace(config, model=replace(config.model, changes=fields), data=replace(config.data, image_size=size))


def network_of(config: RunConfig, facts: dict[str, Any]) -> Any:
    """The configuration of the network, which can be built."""
    size, own = config.data.image_size, config.model.changes.get("image_size")
    if size is not None and own not in (None, size):
        raise ConfigError(f"model.image_size={own}, but data.image_size={size}, which decides: change that")
    if size is not None:
        facts = {**facts, "image_size": size}
    return on_meta(config.model, **facts).config


def complete(config: RunConfig, data: Opened) -> RunConfig:
    """With what the data decides and every field of the network: enough to repeat the run, whatever defaults become."""
    facts = dict(zip(FROM_DATA, (len(data.classes), data.channels), strict=True))
    network = network_of(config, facts)
    for name, fact in facts.items():
        if getattr(network, name) != fact:
            raise ConfigError(f"model.{name}={getattr(network, name)}, but the data has {fact}")
    read = replace(
        config.data,
        root=None if config.data.root is None else whole_path(config.data.root),
        image_size=config.data.image_size or network.image_size,
        batch_size=fitting_batch(config.data.batch_size, data.train_images),
    )
    whole = replace(config, model=replace(config.model, changes=asdict(network)), data=read)
    return with_statistics(whole, data.channels)


def with_statistics(config: RunConfig, channels: int) -> RunConfig:
    """With a mean and a standard deviation for each channel."""
    mean, std = (of_channels(getattr(config.data, name), channels, name) for name in ("mean", "std"))
    return replace(config, data=replace(config.data, mean=mean, std=std))


# In an epoch of a data set that is smaller than the batch of a recipe. One step would do, and teach little.
STEPS_OF_SMALL_SET = 4


def fitting_batch(batch_size: int, images: int | None) -> int:
    """As many images as asked for, if there are so many; a power of two, which processes can share, if not.

    >>> fitting_batch(64, 64), fitting_batch(64, 60), fitting_batch(64, 3), fitting_batch(64, None)
    (64, 8, 2, 64)
    """
    if images is None or images >= batch_size:
        return batch_size
    power_of_two = 1 << (images // STEPS_OF_SMALL_SET).bit_length() >> 1
    return max(power_of_two, min(images, 2))  # batch norm needs two


def whole_path(root: str) -> str:
    """That finds the data from any folder; what is no path, like an address, stays what it is."""
    return root if "://" in root else str(Path(root).expanduser().absolute())


def of_channels(numbers: tuple[float, ...] | None, channels: int, name: str) -> tuple[float, ...]:
    """One for each: a single one stands for all, and grey images have the mean of the three of colours.

    >>> of_channels(None, 3, "mean"), of_channels((0.2, 0.3, 0.4), 1, "mean")
    ((0.5, 0.5, 0.5), (0.3,))
    """
    numbers = numbers or (0.5,)
    if len(numbers) == 1:
        return numbers * channels
    if channels == 1 and len(numbers) == 3:
        return (round(sum(numbers) / 3, 6),)
    if len(numbers) != channels:
        raise ConfigError(
            f"data.{name} needs one number for each of {channels} channels, or one for all, got {numbers}"
        )
    return numbers


def make_classifier(config: RunConfig, data: Opened) -> Classifier:
    """Of a complete configuration."""
    assert config.data.image_size is not None
    batches = len(data.training_loader(config.data.image_size))
    classes = len(data.classes)
    model = create_model(config.model.name, **config.model.changes)
    if config.model.compile:
        model.compile()
    mixes = config.data.mixup or config.data.cutmix
    steps = planned_steps(batches, config.data.batch_size, config.trainer, config.optim)
    if steps.run < 1:
        raise ConfigError(
            f"there is no step to train: {batches} batches in an epoch, "
            f"trainer.limit_train_batches={config.trainer.limit_train_batches}"
        )
    return Classifier(
        model,
        config.optim,
        steps,
        classes=classes,
        prepare=make_prepare(config),
        mixing=Mixing(classes, config.data.mixup, config.data.cutmix) if mixes else None,
    )


def make_prepare(config: RunConfig) -> Prepare:
    assert config.data.mean is not None
    assert config.data.std is not None
    memory_format = torch.channels_last if config.model.channels_last else torch.contiguous_format
    return Prepare(config.data.mean, config.data.std, memory_format)


def with_preparation(config: RunConfig, network: nn.Module) -> nn.Module:
    """From the bytes of images to scores, in the memory format of training and where and as the network is."""
    prepare, weight = make_prepare(config), next(network.parameters())
    network.to(memory_format=prepare.memory_format)  # type: ignore[call-overload]
    return nn.Sequential(prepare.to(weight.device, weight.dtype), network)


def fastest_device() -> torch.device:
    """Where a network that was trained answers."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class RunData(LightningDataModule):
    """Loaders that know which process they serve and where in the run it is."""

    def __init__(self, config: RunConfig, data: Opened) -> None:
        super().__init__()
        assert config.data.image_size is not None
        self.data, self.image_size, self.seed = data, config.data.image_size, config.seed

    def share(self) -> Share:
        assert self.trainer is not None
        return Share(self.trainer.global_rank, self.trainer.world_size)

    def place(self) -> Place:
        """Lightning counts, and restores what it counted: nobody else has to."""
        assert self.trainer is not None
        loop = self.trainer.fit_loop
        epoch: int = loop.epoch_progress.current.processed  # type: ignore[attr-defined]
        return Place(epoch, loop.epoch_loop.batch_progress.current.ready)

    def train_dataloader(self) -> Loader:
        return self.data.training_loader(self.image_size, seed=self.seed, share=self.share(), place=self.place)

    def val_dataloader(self) -> Loader:
        share = self.share()
        loader = self.data.evaluation_loader(self.image_size, share=share)
        if share.world == 1 or isinstance(loader, Sized):
            return loader
        return InStep(loader, self.data.channels, self.image_size)

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """Its tensors; Lightning would look at every name too."""
        images, labels = (t.to(device, non_blocking=device.type == "cuda") for t in (batch.images, batch.labels))
        return batch._replace(images=images, labels=labels)
