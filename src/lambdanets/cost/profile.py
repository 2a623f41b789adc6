"""Parameters, FLOPs, memory and time of a network by stage."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from lambdanets.cost.count import count_on, parts_of_layers, totals
from lambdanets.cost.stages import by_stage, stage_of
from lambdanets.nn import LambdaLayer, LambdaMixer
from lambdanets.nn.hooks import first_argument, temporary_hooks
from lambdanets.nn.modes import evaluating
from lambdanets.nn.norms import frozen_statistics
from lambdanets.nn.tables import RelativeTable

TOTAL, ITSELF = ".", ""  # keys beside the names of stages, which are never these


@dataclass
class StageCost:
    """The cost of one part of a network on one input."""

    name: str
    parameters: int = 0
    flops: int = 0
    activation_bytes: int = 0  # kept by a training step for the backward pass
    seconds: float = 0.0  # of a forward pass in eval mode
    plans: dict[str, int] = field(default_factory=dict)  # how many of its lambda layers take each plan


def profile(model: nn.Module, x: Tensor | Sequence[Tensor], *, rounds: int = 5) -> list[StageCost]:
    """The cost of every stage of `model` on the input `x`, and last the total.

    Stages are the children of the model, and instead of a child called `stages` the children of that. The model is run
    in train and eval mode, and is left unchanged.

    Args:
        x: the input, or all inputs of a model with several, such as `model.example_inputs(b)`.
        rounds: forward passes that are timed; the fastest counts.

    >>> from lambdanets import create_model
    >>> costs = profile(create_model("lambda_resnet26_small"), torch.randn(2, 3, 32, 32), rounds=1)
    >>> {cost.name: f"{cost.flops / 1e9:.1f}" for cost in costs[:3]}
    {'stem': '0.0', 'stages.0': '1.5', 'stages.1': '1.8'}
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got rounds={rounds}")
    inputs = (x,) if isinstance(x, Tensor) else tuple(x)
    counts = count_on(model, inputs)
    with evaluating(model):
        stages = entry_modules(model, inputs)
        costs = {name: StageCost(name) for name in (*stages.values(), TOTAL)}
        for name, (parameters, flops) in {**by_stage(counts), TOTAL: totals(counts)}.items():
            cost = costs.setdefault(name, StageCost(name))
            cost.parameters, cost.flops = parameters, flops
        for name, seconds in seconds_of(model, stages, inputs, rounds).items():
            costs[name].seconds = seconds
        for name, plans in plans_of(model, inputs).items():
            costs.setdefault(name, StageCost(name)).plans = dict(plans)
        model.train()
        try:
            with torch.inference_mode(False):
                kept = kept_by(model, stages, inputs)
        except ValueError as error:  # one image whose last maps have one position has no batch statistics
            shapes = ", ".join(str(tuple(x.shape)) for x in inputs)
            raise ValueError(
                f"{error}: the memory of a training step cannot be measured from {shapes}, take a larger batch"
            ) from error
        for name, kept_bytes in kept.items():
            costs.setdefault(name, StageCost(name)).activation_bytes = kept_bytes
    if ITSELF in costs:  # what belongs to no stage, or everything if the model is a single layer
        parts = sum(cost.seconds for name, cost in costs.items() if name != TOTAL)
        costs[ITSELF].name, costs[ITSELF].seconds = type(model).__name__, max(0.0, costs[TOTAL].seconds - parts)
    total = costs.pop(TOTAL)
    total.name = "total"
    used = [cost for cost in costs.values() if cost.parameters or cost.flops or cost.activation_bytes or cost.plans]
    return [*used, total]


def entry_modules(model: nn.Module, inputs: Sequence[Tensor]) -> dict[nn.Module, str]:
    """The outermost modules that are called in each stage, with the name of the stage.

    A stage may be a container that is never called itself. Only these modules get hooks while time is measured, because
    hooks on inner modules, such as norms, would turn off fused paths.
    """
    inside: list[str] = []
    found: dict[nn.Module, str] = {}
    handles = []

    def before(module: nn.Module, stage: str) -> None:
        if stage not in inside:
            found[module] = stage
        inside.append(stage)

    without_hooks = parts_of_layers(model)
    for name, module in model.named_modules():
        stage = stage_of(name)
        if name not in ("", "stages") and module not in without_hooks:
            handles.append(module.register_forward_pre_hook(lambda module, _, stage=stage: before(module, stage)))
            handles.append(module.register_forward_hook(lambda *_, stage=stage: inside.remove(stage)))
    with temporary_hooks(handles), torch.no_grad():
        model(*inputs)
    return found


@contextmanager
def stage_callbacks(
    stages: Mapping[nn.Module, str], enter: Callable[[str], object], leave: Callable[[str], object]
) -> Iterator[None]:
    """Within the context, `enter` and `leave` are called with the name of a stage around every call of it."""
    handles = []
    for module, stage in stages.items():
        handles.append(module.register_forward_pre_hook(lambda *_, stage=stage: void(enter(stage))))
        handles.append(module.register_forward_hook(lambda *_, stage=stage: void(leave(stage))))
    with temporary_hooks(handles):
        yield


def void(_: object) -> None:
    """None, which a hook returns to change nothing."""


def seconds_of(
    model: nn.Module, stages: Mapping[nn.Module, str], inputs: Sequence[Tensor], rounds: int
) -> dict[str, float]:
    """Times in the fastest of some forward passes after a warm-up, so that the parts add up."""
    passes: list[dict[str, float]] = []
    for _ in range(rounds + 1):
        taken: dict[str, float] = {}

        def enter(stage: str, taken: dict[str, float] = taken) -> None:
            taken[stage] = taken.get(stage, 0.0) - now(inputs)

        def leave(stage: str, taken: dict[str, float] = taken) -> None:
            taken[stage] += now(inputs)

        with torch.no_grad(), stage_callbacks(stages, enter, leave):
            enter(TOTAL)
            model(*inputs)
            leave(TOTAL)
        passes.append(taken)
    return min(passes[1:], key=lambda taken: taken[TOTAL])


def now(inputs: Sequence[Tensor]) -> float:
    """The time after all work on the device of the inputs is done."""
    for device in {x.device for x in inputs}:
        if device.type not in ("cpu", "meta"):
            torch.accelerator.synchronize(device)
    return time.perf_counter()


def kept_by(model: nn.Module, stages: Mapping[nn.Module, str], inputs: Sequence[Tensor]) -> dict[str, int]:
    """Bytes that each stage saves for the backward pass. Shared memory counts once, parameters do not count."""
    kept: Counter[str] = Counter({TOTAL: 0})
    inside: list[str] = []
    inputs = [x.clone() if x.is_inference() else x for x in inputs]
    seen: dict[int, Any] = {memory_of(t): t for t in (*inputs, *model.parameters(), *model.buffers())}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if memory_of(tensor) not in seen:
            seen[memory_of(tensor)] = tensor  # keeps it alive, so that its address is not reused
            for name in {TOTAL, *(inside or [ITSELF])}:  # a checkpointed stage is entered after its input was saved
                kept[name] += storage.nbytes()
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    callbacks = stage_callbacks(stages, inside.append, inside.remove)
    with torch.enable_grad(), frozen_statistics(model), callbacks, hooks:
        model(*inputs)
    return kept


def memory_of(tensor: Tensor) -> int:
    """Equal for tensors that share their memory, also on the meta device, where all of it is at address 0."""
    address: int = tensor.untyped_storage()._cdata
    return address


def plans_of(model: nn.Module, inputs: Sequence[Tensor]) -> dict[str, Counter[str]]:
    """How many lambda layers of every stage take each plan for the inputs they get."""
    taken: dict[str, Counter[str]] = {}
    handles = []
    for name, module in model.named_modules():
        if isinstance(module, LambdaLayer) and isinstance(module.table, RelativeTable):

            def look(
                layer: LambdaLayer, args: tuple[Tensor, ...], kwargs: dict[str, Any], stage: str = stage_of(name)
            ) -> None:
                given = first_argument(args, kwargs)
                size = given.shape[1:2] if isinstance(layer, LambdaMixer) else given.shape[2:]
                chosen = layer.explain(tuple(size), b=given.shape[0], patience=0.0).chosen
                for where in (stage, TOTAL):
                    taken.setdefault(where, Counter())[chosen] += 1

            handles.append(module.register_forward_pre_hook(look, with_kwargs=True))
    with temporary_hooks(handles), torch.no_grad():
        model(*inputs)
    return taken
