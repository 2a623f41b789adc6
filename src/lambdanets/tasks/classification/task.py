"""Image classification: cross-entropy, accuracy, confusion matrix and worst mistakes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lambdanets.data import Batch, Splits
from lambdanets.data.images import (
    ImageDataConfig,
    LabelledImage,
    Mixing,
    Normalise,
    check_source,
    for_evaluation,
    for_training,
    open_images,
    per_channel,
)
from lambdanets.data.images.config import Crop
from lambdanets.fields import brief, fitted_fields, hints_of
from lambdanets.models.images import ImageClassifier
from lambdanets.tasks.classification.metrics import IGNORED, Accuracy
from lambdanets.tasks.classification.predict import ClassPrediction, predict
from lambdanets.tasks.classification.report import ClassificationReport, make_report
from lambdanets.train.config import ConfigError, ImageModelConfig, RunConfig, SmoothedOptimConfig
from lambdanets.train.panels import GREEN, ORANGE, Line, Panel
from lambdanets.train.task import Loss, Score, Task


class ClassificationInputs(NamedTuple):
    """The inputs of a batch, and the examples it is made of."""

    images: UInt8[Tensor, "*b c s s"]
    labels: Any  # int64: a tensor in a batch


@dataclass(frozen=True, kw_only=True)
class ClassificationState:
    """What prediction needs in addition to the network."""

    classes: tuple[str, ...]
    image_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop: Crop
    channels_last: bool

    def __post_init__(self) -> None:
        if not self.classes or self.image_size < 1 or not self.mean or len(self.mean) != len(self.std):
            raise ValueError(
                f"it must have classes, an image_size, and mean and std of each channel, got {brief(self)}"
            )
        if not all(0 < one < float("inf") for one in self.std):
            raise ValueError(f"std must be numbers above 0, got {brief(self.std)}")


@dataclass(frozen=True)
class LabelledSplits(Splits):
    classes: tuple[str, ...] = ()


class Classification(Task):
    name = "classification"
    unit = items = "images"
    score = Score("val_accuracy", "accuracy", is_percentage=True)
    sections: ClassVar[Mapping[str, type]] = {
        "model": ImageModelConfig,
        "data": ImageDataConfig,
        "optim": SmoothedOptimConfig,
    }
    decided_by_data = ("num_classes", "in_chans")
    panels = (
        Panel(
            "validation accuracy, %",
            (
                Line("val_accuracy", ORANGE, "top-1 {:.1f} %".format, 100.0),
                Line("val_accuracy_top5", GREEN, "top-5 {:.1f} %".format, 100.0),
            ),
        ),
    )
    pictures = ("confusion.png", "mistakes.png")

    def __init__(self, settings: ClassificationState, config: RunConfig | None = None) -> None:
        """Without a configuration it can evaluate and predict, but not train."""
        self.settings = settings
        self.memory_format = torch.channels_last if settings.channels_last else torch.contiguous_format
        self.normalise = Normalise(settings.mean, settings.std, self.memory_format)
        evaluated = ImageDataConfig(crop=settings.crop)
        self.transform_val = for_evaluation(evaluated, settings.image_size)
        self.transform_train, self.mixing, self.label_smoothing = self.transform_val, None, 0.0
        if config is not None:
            data = config.data
            self.transform_train = for_training(data, settings.image_size)
            self.label_smoothing = config.optim.label_smoothing
            if data.mixup or data.cutmix:
                self.mixing = Mixing(len(settings.classes), data.mixup, data.cutmix)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.settings.classes

    # From a configuration to a task.

    @classmethod
    def check(cls, config: RunConfig) -> None:
        check_source(config.data)

    @classmethod
    def open(cls, config: RunConfig) -> Splits:
        images = open_images(config.data)
        decided = dict(zip(cls.decided_by_data, (len(images.classes), images.channels), strict=True))
        spare = (images.smallest_class or 1) - 1
        return LabelledSplits(images.train, images.val, decided, spare, classes=images.classes)

    @classmethod
    def adapt_recipe(cls, recipe: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Remove the image size of a recipe's network if the changes set one for the data.

        >>> Classification.adapt_recipe({"model": {"k": 4, "image_size": 8}}, {"data": {"image_size": 16}})
        {'model': {'k': 4}}
        """
        own, wanted = recipe.get("model"), changes.get("data")
        if not isinstance(own, Mapping) or not isinstance(wanted, Mapping) or "image_size" not in wanted:
            return recipe
        return {**recipe, "model": {key: value for key, value in own.items() if key != "image_size"}}

    @classmethod
    def network_kwargs(cls, config: RunConfig) -> dict[str, Any]:
        size, own = config.data.image_size, config.model.changes.get("image_size")
        if size is not None and own not in (None, size):
            raise ConfigError(f"model.image_size={own}, but data.image_size={size}, which decides: change that")
        return {} if size is None else {"image_size": size}

    @classmethod
    def complete(cls, config: RunConfig, network: Any, splits: Splits | None) -> RunConfig:
        data = replace(config.data, image_size=config.data.image_size or network.image_size)
        if splits is not None:
            try:
                statistics = {n: per_channel(getattr(data, n), splits.network["in_chans"], n) for n in ("mean", "std")}
            except ValueError as error:
                raise ConfigError(str(error)) from error
            data = replace(data, **statistics)
        return replace(config, data=data)

    @classmethod
    def incomplete(cls, config: RunConfig) -> list[str]:
        return [f"data.{name}" for name in ("image_size", "mean", "std") if getattr(config.data, name) is None]

    @classmethod
    def create(cls, config: RunConfig, splits: Splits) -> "Classification":
        assert isinstance(splits, LabelledSplits)
        return cls(settings_of(config, splits.classes), config)

    # Examples and batches.

    def train_example(self, read: LabelledImage) -> ClassificationInputs:
        return ClassificationInputs(self.transform_train(read.image), read.label)

    def val_example(self, read: LabelledImage) -> ClassificationInputs:
        return ClassificationInputs(self.transform_val(read.image), read.label)

    def collate(self, examples: Sequence[ClassificationInputs]) -> Batch:
        size, channels = self.settings.image_size, len(self.settings.mean)
        images = torch.empty(0, channels, size, size, dtype=torch.uint8)
        if examples:
            images = torch.stack([example.images for example in examples])
        labels = torch.tensor([example.labels for example in examples], dtype=torch.int64)
        return Batch(inputs=ClassificationInputs(images, labels), counts=[1] * len(examples))

    def filler(self) -> Batch:
        size, channels = self.settings.image_size, len(self.settings.mean)
        blank = ClassificationInputs(torch.zeros(channels, size, size, dtype=torch.uint8), IGNORED)
        return replace(self.collate([blank]), names=["filler"], valid=torch.tensor([False]))

    # Learning.

    def loss(self, network: nn.Module, batch: Batch) -> Loss:
        images, labels = self.normalised(network, batch.inputs.images), batch.inputs.labels
        weight = len(labels)
        if self.mixing is not None:
            images, labels = self.mixing(images, labels)
        total = cross_entropy(network(images), labels, label_smoothing=self.label_smoothing, reduction="sum")
        return Loss(total, weight)

    def forward(self, network: nn.Module, batch: Batch) -> Float[Tensor, "b k"]:
        scores: Tensor = network(self.normalised(network, batch.inputs.images))
        return scores

    def normalised(self, network: nn.Module, images: UInt8[Tensor, "b c i j"]) -> Float[Tensor, "b c i j"]:
        return self.normalise(images, next(network.parameters()).dtype)

    def metrics(self) -> Accuracy:
        return Accuracy(len(self.classes))

    def validate(self, network: nn.Module, batch: Batch, metrics: Accuracy) -> None:
        metrics.add(self.forward(network, batch), valid_labels(batch))

    def report(self, network: nn.Module, batches: Iterable[Batch]) -> ClassificationReport:
        device = next(network.parameters()).device
        answered = ((batch, self.forward(network, batch.to(device))) for batch in batches)
        return make_report(
            ((batch, scores.float().cpu(), valid_labels(batch)) for batch, scores in answered), self.classes
        )

    # Prediction.

    def predict(self, network: nn.Module, inputs: Sequence[str], *, top: int) -> Iterator[ClassPrediction]:
        def classify(images: UInt8[Tensor, "b c s s"]) -> Float[Tensor, "b k"]:
            device = next(network.parameters()).device
            scores: Tensor = network(self.normalised(network, images.to(device)))
            return scores

        return predict(classify, self.transform_val, inputs, self.classes, len(self.settings.mean), top)

    def state(self) -> dict[str, Any]:
        return asdict(self.settings)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Classification":
        known = hints_of(ClassificationState)
        if wrong := sorted(known.keys() ^ state.keys()):
            raise ValueError(f"it must have {', '.join(known)}; {brief(wrong[0])} is missing or unknown")
        return cls(ClassificationState(**fitted_fields(ClassificationState, state)))

    def check_network(self, network: nn.Module) -> None:
        if not isinstance(network, ImageClassifier):
            raise ValueError(f"a {type(network).__name__} does not classify images")
        if network.num_classes != len(self.classes):
            raise ValueError(f"it names {len(self.classes)} classes, but the network has {network.num_classes} outputs")
        takes = network.config
        for name in ("mean", "std"):
            if len(getattr(self.settings, name)) != takes.in_chans:
                raise ValueError(
                    f"{name} is {brief(getattr(self.settings, name))}, "
                    f"but the network takes images with {takes.in_chans} channels"
                )
        if self.settings.image_size != takes.image_size:
            raise ValueError(f"image_size is {self.settings.image_size}, but the network takes {takes.image_size}")

    def check_same(self, saved: "Classification") -> None:
        if len(saved.classes) != len(self.classes):
            raise ValueError(f"the run has {len(saved.classes)} classes, the data has {len(self.classes)}")
        if len(saved.settings.mean) != len(self.settings.mean):
            before, now = (len(task.settings.mean) for task in (saved, self))
            raise ValueError(f"the run takes images with {before} channels, the data has {now}")
        for number, (old, new) in enumerate(zip(saved.classes, self.classes, strict=True)):
            if old != new:
                raise ValueError(f"class {number} is {brief(old)} in the run, and {brief(new)} in the data")


def settings_of(config: RunConfig, classes: tuple[str, ...]) -> ClassificationState:
    """Of a complete configuration."""
    data = config.data
    return ClassificationState(
        classes=classes,
        image_size=data.image_size,
        mean=data.mean,
        std=data.std,
        crop=data.crop,
        channels_last=config.model.channels_last,
    )


def valid_labels(batch: Batch) -> Int64[Tensor, "b"]:
    labels: Tensor = batch.inputs.labels
    return labels.masked_fill(~batch.valid, IGNORED)
