"""Where the parameters, FLOPs, memory and time of a network go, stage by stage."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from lambdanets.cost.count import count, parts_of_layers, totals
from lambdanets.cost.stages import by_stage, stage_of
from lambdanets.nn import LambdaLayer, LambdaMixer
from lambdanets.nn.hooks import first_argument, temporary_hooks
from lambdanets.nn.modes import evaluating
from lambdanets.nn.norms import frozen_statistics
from lambdanets.nn.tables import RelativeTable

TOTAL, ITSELF = ".", ""  # and the names of stages, which are never these


@dataclass
class StageCost:
    """What one part of a network costs on one input."""

    name: str
    parameters: int = 0
    flops: int = 0
    activation_bytes: int = 0  # that a training step keeps for its backward pass
    seconds: float = 0.0  # of a forward pass in eval mode, where it is called
    plans: dict[str, int] = field(default_factory=dict)  # of its lambda layers, and how many take each


def profile(model: nn.Module, x: Tensor, *, rounds: int = 5) -> list[StageCost]:
    """What every stage of `model` costs on the input `x`, and last what all of it costs.

    Stages are the children of the model, and of a child called `stages` the children of that. The model is run in both
    modes, and is left as it was.

    >>> from lambdanets import create_model
    >>> costs = profile(create_model("lambda_resnet26_small"), torch.randn(2, 3, 32, 32), rounds=1)
    >>> {cost.name: f"{cost.flops / 1e9:.1f}" for cost in costs[:3]}
    {'stem': '0.0', 'stages.0': '1.5', 'stages.1': '1.8'}
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got rounds={rounds}")
    counts = count(model, x.shape, x.dtype)
    with evaluating(model):
        stages = entrances(model, x)
        costs = {name: StageCost(name) for name in (*stages.values(), TOTAL)}
        for name, (parameters, flops) in {**by_stage(counts), TOTAL: totals(counts)}.items():
            cost = costs.setdefault(name, StageCost(name))
            cost.parameters, cost.flops = parameters, flops
        for name, seconds in seconds_of(model, stages, x, rounds).items():
            costs[name].seconds = seconds
        for name, plans in plans_of(model, x).items():
            costs.setdefault(name, StageCost(name)).plans = dict(plans)
        model.train()
        try:
            with torch.inference_mode(False):
                kept = kept_by(model, stages, x)
        except ValueError as error:  # one image whose last maps have one position has no batch statistics
            raise ValueError(
                f"{error}: what a training step keeps cannot be told from {tuple(x.shape)}, take a larger batch"
            ) from error
        for name, kept_bytes in kept.items():
            costs.setdefault(name, StageCost(name)).activation_bytes = kept_bytes
    if ITSELF in costs:  # what belongs to no part of the model, or all of it if that is a single layer
        parts = sum(cost.seconds for name, cost in costs.items() if name != TOTAL)
        costs[ITSELF].name, costs[ITSELF].seconds = type(model).__name__, max(0.0, costs[TOTAL].seconds - parts)
    total = costs.pop(TOTAL)
    total.name = "total"
    used = [cost for cost in costs.values() if cost.parameters or cost.flops or cost.activation_bytes or cost.plans]
    return [*used, total]


def entrances(model: nn.Module, x: Tensor) -> dict[nn.Module, str]:
    """The modules through which calls go into a stage, with that stage.

    A stage may be a container that is never called itself. Others must not be listened to: a lambda layer, or a norm
    that is taken together with what follows it, is computed another way when somebody does.
    """
    inside: list[str] = []
    found: dict[nn.Module, str] = {}
    handles = []

    def before(module: nn.Module, stage: str) -> None:
        if stage not in inside:
            found[module] = stage
        inside.append(stage)

    unheard = parts_of_layers(model)
    for name, module in model.named_modules():
        stage = stage_of(name)
        if name not in ("", "stages") and module not in unheard:
            handles.append(module.register_forward_pre_hook(lambda module, _, stage=stage: before(module, stage)))
            handles.append(module.register_forward_hook(lambda *_, stage=stage: inside.remove(stage)))
    with temporary_hooks(handles), torch.no_grad():
        model(x)
    return found


@contextmanager
def telling(
    stages: Mapping[nn.Module, str], enter: Callable[[str], object], leave: Callable[[str], object]
) -> Iterator[None]:
    """Inside, whoever listens is told when a call goes into a stage and when it comes out."""
    handles = []
    for module, stage in stages.items():
        handles.append(module.register_forward_pre_hook(lambda *_, stage=stage: void(enter(stage))))
        handles.append(module.register_forward_hook(lambda *_, stage=stage: void(leave(stage))))
    with temporary_hooks(handles):
        yield


def void(_: object) -> None:
    """What a hook must answer to change nothing."""


def seconds_of(model: nn.Module, stages: Mapping[nn.Module, str], x: Tensor, rounds: int) -> dict[str, float]:
    """Of the best of some forward passes, so that parts add up; one before them warms up."""
    passes: list[dict[str, float]] = []
    for _ in range(rounds + 1):
        taken: dict[str, float] = {}

        def enter(stage: str, taken: dict[str, float] = taken) -> None:
            taken[stage] = taken.get(stage, 0.0) - now(x)

        def leave(stage: str, taken: dict[str, float] = taken) -> None:
            taken[stage] += now(x)

        with torch.no_grad(), telling(stages, enter, leave):
            enter(TOTAL)
            model(x)
            leave(TOTAL)
        passes.append(taken)
    return min(passes[1:], key=lambda taken: taken[TOTAL])


def now(x: Tensor) -> float:
    """The time once everything before is done."""
    if x.device.type not in ("cpu", "meta"):
        torch.accelerator.synchronize(x.device)
    return time.perf_counter()


def kept_by(model: nn.Module, stages: Mapping[nn.Module, str], x: Tensor) -> dict[str, int]:
    """Bytes that each stage leaves behind for the backward pass, each memory counted once, parameters not at all."""
    kept: Counter[str] = Counter({TOTAL: 0})
    inside: list[str] = []
    x = x.clone() if x.is_inference() else x
    seen: dict[int, Any] = {memory_of(t): t for t in (x, *model.parameters(), *model.buffers())}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if memory_of(tensor) not in seen:
            seen[memory_of(tensor)] = tensor  # alive, so that nobody else gets its address
            for name in {TOTAL, *(inside or [ITSELF])}:  # a checkpointed stage is entered after its input was kept
                kept[name] += storage.nbytes()
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    with torch.enable_grad(), frozen_statistics(model), telling(stages, inside.append, inside.remove), hooks:
        model(x)
    return kept


def memory_of(tensor: Tensor) -> int:
    """Equal for tensors that share their memory, also on the meta device, where all of it is at address 0."""
    address: int = tensor.untyped_storage()._cdata
    return address


def plans_of(model: nn.Module, x: Tensor) -> dict[str, Counter[str]]:
    """Which plans the lambda layers of every stage take for what they are given."""
    taken: dict[str, Counter[str]] = {}
    handles = []
    for name, module in model.named_modules():
        if isinstance(module, LambdaLayer) and isinstance(module.table, RelativeTable):

            def look(
                layer: LambdaLayer, inputs: tuple[Tensor, ...], named: dict[str, Any], stage: str = stage_of(name)
            ) -> None:
                given = first_argument(inputs, named)
                size = given.shape[1:2] if isinstance(layer, LambdaMixer) else given.shape[2:]
                chosen = layer.explain(tuple(size), b=given.shape[0], patience=0.0).chosen
                for where in (stage, TOTAL):
                    taken.setdefault(where, Counter())[chosen] += 1

            handles.append(module.register_forward_pre_hook(look, with_kwargs=True))
    with temporary_hooks(handles), torch.no_grad():
        model(x)
    return taken
