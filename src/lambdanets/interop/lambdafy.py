"""Conversion of the 3x3 convolutions of other libraries' ResNets to lambda layers, by the paper's rules."""

from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from lambdanets.cost import before_and_after, count, without_memory
from lambdanets.models.middle import Lambda, Place
from lambdanets.models.resnet_config import ResNetConfig
from lambdanets.nn.arguments import positive
from lambdanets.nn.hooks import has_hooks

STAGES = ("layer1", "layer2", "layer3", "layer4")  # as torchvision and timm call c2 to c5
IMAGE_SIZE = 224


def lambdafy(
    model: nn.Module,
    stages: str | int | Collection[int] = "LLLL",
    *,
    k: int = 16,
    h: int = 4,
    u: int = 1,
    scope: int | str | None = "auto",
    image_size: int | None = None,
    show: Callable[[str], None] | None = print,
    **options: Any,
) -> nn.Module:
    """Replace the 3x3 convolutions of a ResNet of torchvision or timm by randomly initialised lambda layers.

    Everything else keeps its weights, except that the last norm of a changed block starts at gamma 0, so that the block
    starts as its shortcut. A stride becomes a 3x3 average pool after the layer. As in the paper's hybrids,
    squeeze-and-excitation stays only in blocks of the first two stages that have no lambda layer. The model is changed
    in place and returned; create the optimiser afterwards.

    Args:
        stages: a placement for the four stages as in `create_model`, such as "CCLL" or "CC3L", or the numbers of some
            of `layer1` to `layer4`.
        scope: of the lambda layers; by default 23, or 7 when u > 1; None is global.
        image_size: decides the size of embeddings; by default the input size of a timm model, or 224.
        show: is called with a table of parameters and FLOPs before and after; None for no table.
        options: further options of `lambdanets.models.Lambda`, such as `terms` or `share`.

    >>> from torchvision.models import resnet50
    >>> print(lambdafy(resnet50(), "CCLL", show=None).layer4[0].conv2[1])
    AvgPool2d(kernel_size=3, stride=2, padding=1)
    """
    config = config_of(model, stages, k=k, h=h, u=u, scope=scope)
    side = input_size(model) if image_size is None else image_size
    positive("lambdafy", image_size=side)
    shape = (1, channels_in(model), side, side)
    sizes = map_sizes(model, shape)
    before = count(model, shape) if show is not None else []
    make = Lambda(k=k, h=h, u=u, scope=config.lambda_scope, **options)
    layers = {}
    for name, stage, block, convolution in chosen(model, config):
        refuse_unlike(name, convolution)
        d_in, d_out, stride = convolution.in_channels, convolution.out_channels, convolution.stride[0]
        with torch.device(convolution.weight.device):
            layer = make(Place(d_out, stride, sizes[name], stage, block, d_in))
        layers[name] = layer.to(convolution.weight.dtype).train(convolution.training)
    for name, layer in layers.items():
        model.set_submodule(name, layer)
    for stage, block, module in blocks_of(model):
        if isinstance(getattr(module, "se", None), nn.Module) and not config.has_se(stage, block):
            setattr(module, "se", None)  # noqa: B010, mypy takes it for a submodule
        if config.is_lambda(stage, block):
            begin_as_shortcut(module)
    if show is not None:
        show(before_and_after(before, count(model, shape)))
    return model


def config_of(model: nn.Module, stages: str | int | Collection[int], **options: Any) -> ResNetConfig:
    """A configuration of ours that has lambda layers in the same places."""
    if hasattr(model, "_orig_mod"):
        raise ValueError("lambdafy changes networks before they are compiled, got one behind torch.compile")
    if not all(isinstance(getattr(model, stage, None), nn.Sequential) for stage in STAGES):
        raise ValueError(
            f"lambdafy knows the ResNets of torchvision and timm, with the stages {', '.join(STAGES)}, "
            f"got a {type(model).__name__}"
        )
    stages = (stages,) if isinstance(stages, int) else stages
    if not isinstance(stages, str):
        if not stages or not set(stages) <= {1, 2, 3, 4}:
            raise ValueError(f'stages must be like "CCLL", or some of the numbers 1 to 4, got stages={stages!r}')
        stages = "".join("L" if stage + 1 in stages else "C" for stage in range(4))
    lengths = tuple(len(getattr(model, stage)) for stage in STAGES)
    config = ResNetConfig(blocks=lengths, placement=stages, se=True, **options)  # type: ignore[arg-type]
    if not any(config.is_lambda(stage, block) for stage, length in enumerate(lengths) for block in range(length)):
        raise ValueError(f"there is nothing to do with stages={stages!r}")
    return config


def blocks_of(model: nn.Module) -> Iterator[tuple[int, int, nn.Module]]:
    for stage, name in enumerate(STAGES):
        for block, module in enumerate(getattr(model, name)):
            yield stage, block, module


def chosen(model: nn.Module, config: ResNetConfig) -> Iterator[tuple[str, int, int, nn.Conv2d]]:
    """The 3x3 convolutions to replace, with their names, stages and blocks."""
    for stage, block, module in blocks_of(model):
        if not config.is_lambda(stage, block):
            continue
        place = f"{STAGES[stage]}.{block}"
        found = [
            (f"{place}.{name}", child)
            for name, child in module.named_children()
            if isinstance(child, nn.Conv2d) and child.kernel_size == (3, 3)
        ]
        if not found:
            raise ValueError(f"{place} has no 3x3 convolution, it is a {type(module).__name__}")
        for name, convolution in found:
            yield name, stage, block, convolution


def begin_as_shortcut(block: nn.Module) -> None:
    """Zero the last norm of a block, as the paper does.

    While running statistics do not fit yet, features grow quadratically from one random layer to the next, and would
    overflow after a few.
    """
    norms = [
        child
        for child in block.children()
        if isinstance(getattr(child, "running_var", None), Tensor) or isinstance(child, nn.GroupNorm | nn.LayerNorm)
    ]
    if norms and isinstance(norms[-1].weight, Tensor):
        # A new parameter, because a frozen gamma of 0 would never let the new layer learn.
        norms[-1].weight = nn.Parameter(torch.zeros_like(norms[-1].weight))


def refuse_unlike(name: str, convolution: nn.Conv2d) -> None:
    """The paper has rules for plain 3x3 convolutions only."""
    like = nn.Conv2d(convolution.in_channels, convolution.out_channels, 3, convolution.stride[0], 1, bias=False)
    if str(convolution) != str(like):
        raise ValueError(f"{name} is {convolution}; only plain 3x3 convolutions can become lambda layers")
    if has_hooks(convolution):
        raise ValueError(f"{name} has hooks, which would be lost")


def input_size(model: nn.Module) -> int:
    """The input size of a timm model; models of torchvision do not record theirs."""
    said = getattr(model, "pretrained_cfg", None)
    return int(said["input_size"][-1]) if isinstance(said, dict) and "input_size" in said else IMAGE_SIZE


def channels_in(model: nn.Module) -> int:
    return next(module.in_channels for module in model.modules() if isinstance(module, nn.Conv2d))


def map_sizes(model: nn.Module, shape: tuple[int, ...]) -> dict[str, tuple[int, int]]:
    """Sizes of the maps that every convolution sees, from a forward pass on the meta device."""
    shadow = without_memory(model).eval()
    sizes: dict[str, tuple[int, int]] = {}
    for name, module in shadow.named_modules():
        if isinstance(module, nn.Conv2d):

            def watch(_: nn.Module, inputs: tuple[Tensor, ...], name: str = name) -> None:
                sizes[name] = (inputs[0].shape[2], inputs[0].shape[3])

            module.register_forward_pre_hook(watch)
    with torch.no_grad():
        shadow(torch.empty(shape, device="meta"))
    return sizes
