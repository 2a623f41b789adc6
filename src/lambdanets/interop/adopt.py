"""Replacement of other libraries' lambda layers by ours inside any network: same weights, same outputs, faster."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lambdanets.interop.peers import READERS, CannotAdoptError, Reading
from lambdanets.nn import LambdaLayer2d
from lambdanets.nn.hooks import first_argument, has_hooks, temporary_hooks
from lambdanets.nn.modes import evaluating
from lambdanets.nn.tables import RelativeTable
from lambdanets.timing import best_times

# Of the maps on which layers are compared and timed if no example is given.
SIDE = 28
ROUNDS = 3
LARGEST = 2**28  # elements of what a peer computes for every pair of positions
# Of outputs, relative to the largest. In half precision, ours and theirs round at different steps.
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-5}
HALF_TOLERANCE = 0.03


class Swap(NamedTuple):
    """A layer and its replacement."""

    name: str
    theirs: nn.Module
    ours: nn.Module


def adopt(model: nn.Module, example: Tensor | None = None, *, show: Callable[[str], None] | None = print) -> nn.Module:
    """Replace every lambda layer of lucidrains' `lambda_networks` and of timm inside `model` by ours.

    Weights, statistics, modes, dtypes and devices stay the same, and so do the outputs: each layer is compared first.
    The model is changed in place and returned; if it is itself such a layer, our layer is returned. If any layer cannot
    be replaced, nothing is changed and the error says why. Replaced layers have our names in the state_dict and new
    parameters: create the optimiser afterwards.

    Args:
        example: an input of the model. With it, layers are compared on the maps that they see in the model, and the
            whole model is timed too.
        show: is called with the report; None for no report.

    >>> from timm.layers.lambda_layer import LambdaLayer
    >>> adopt(nn.Sequential(LambdaLayer(32), nn.ReLU()), show=None)[0].table
    RelativeTable(rows=81, k=16, u=1, scope=(9, 9), size=None)
    """
    swaps = [Swap(name, layer, ours_for(name, layer)) for name, layer in peers_in(model)]
    if not swaps:
        raise CannotAdoptError(f"{type(model).__name__} has no lambda layer of lucidrains or timm inside")
    refuse_shared_parameters(model, swaps)
    inputs = {} if example is None else inputs_of(model, example, [swap.theirs for swap in swaps])
    report = [compare(swap, inputs.get(swap.theirs)) for swap in swaps]
    if example is not None:
        report.append(compare_models(model, swaps, example))
    if show is not None:
        show("\n".join(report))
    return put(model, swaps, back=False)


def peers_in(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The layers to replace, each once, with their names."""
    found = []
    for name, module in model.named_modules():
        kinds = [(kind.__module__, kind.__name__) for kind in type(module).__mro__]
        known = [kind for kind in kinds if kind in READERS]
        if known and kinds[0] not in READERS:
            raise CannotAdoptError(f"{name}: {kinds[0][1]} is made from {'.'.join(known[0])} and may do something else")
        if known:
            found.append((name, module))
    return found


def ours_for(name: str, theirs: nn.Module) -> nn.Module:
    """Our layer with the weights of theirs."""
    kind = (type(theirs).__module__, type(theirs).__name__)
    try:
        if any(has_hooks(module) for module in theirs.modules()):
            raise CannotAdoptError("it has hooks, which would be lost")
        with torch.enable_grad():  # so that tensors made from trained parameters require a gradient
            reading = READERS[kind](theirs)
    except CannotAdoptError as error:
        raise CannotAdoptError(f"{name or 'the layer'}, of {kind[0]}, cannot be adopted: {error}") from error
    layer = build(reading)
    layer.train(theirs.training)
    for its_name, norm in reading.norms.items():
        getattr(layer, its_name).train(norm.training)
    if reading.behind is None:
        return layer
    both = nn.Sequential(layer, reading.behind)
    both.training = theirs.training  # not train(), which would change the modes of its norms
    return both


def build(reading: Reading) -> LambdaLayer2d:
    with torch.device("meta"):
        layer = LambdaLayer2d(**reading.options)
        for name, norm in reading.norms.items():
            like = nn.SyncBatchNorm if isinstance(norm, nn.SyncBatchNorm) else nn.BatchNorm1d
            settings = (norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
            setattr(layer, name, like(*settings))
    state = {name: tensor.detach().clone() for name, tensor in reading.state.items()}
    layer.load_state_dict(state, assign=True)
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(reading.state[name].requires_grad)
    return layer


def refuse_shared_parameters(model: nn.Module, swaps: Sequence[Swap]) -> None:
    """A layer that shares parameters with the rest of the model would lose the connection."""
    for swap in swaps:
        own = {id(parameter) for parameter in swap.theirs.parameters()}
        if own & {id(parameter) for parameter in parameters_outside(model, swap.theirs)}:
            raise CannotAdoptError(f"{swap.name} cannot be adopted: it shares parameters with another layer")


def parameters_outside(model: nn.Module, layer: nn.Module) -> Iterator[nn.Parameter]:
    """The parameters that the model would have without the layer."""
    if model is not layer:
        yield from model.parameters(recurse=False)
        for child in model.children():
            yield from parameters_outside(child, layer)


def put(model: nn.Module, swaps: Sequence[Swap], *, back: bool) -> nn.Module:
    """Put our layers into the model, or theirs back; returns the model, or the replacement of all of it."""
    old_to_new = {swap.ours: swap.theirs for swap in swaps} if back else {swap.theirs: swap.ours for swap in swaps}
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):  # named_children hides a layer's second name
            if child in old_to_new:
                parent._modules[name] = old_to_new[child]
    return old_to_new.get(model, model)


def inputs_of(model: nn.Module, example: Tensor, layers: Sequence[nn.Module]) -> Mapping[nn.Module, Tensor]:
    """The input of each layer when the model runs on the example."""
    seen: dict[nn.Module, Tensor] = {}

    def look(layer: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        seen[layer] = first_argument(inputs, named)

    handles = [layer.register_forward_pre_hook(look, with_kwargs=True) for layer in layers]
    try:
        with temporary_hooks(handles), evaluating(model), torch.no_grad():
            model(example)
    except RuntimeError as error:
        raise CannotAdoptError(f"the model cannot be run on an example {tuple(example.shape)}: {error}") from error
    return seen


def compare(swap: Swap, x: Tensor | None) -> str:
    """A line of the report about one layer; CannotAdoptError if outputs differ."""
    layer = next(module for module in swap.ours.modules() if isinstance(module, LambdaLayer2d))
    table = layer.table
    assert isinstance(table, RelativeTable)
    weight = layer.query.weight
    what = f"{swap.name or 'the layer'}: {type(swap.theirs).__module__.partition('.')[0]}, {layer.d_in} channels"
    if weight.device.type == "meta":
        return what
    if x is None:
        size = table.size if table.is_global and table.size is not None else (SIDE, SIDE)
        x = torch.randn(2, layer.d_in, *size, dtype=weight.dtype, device=weight.device)
    if table.is_global and math.prod(x.shape[2:]) ** 2 * layer.k * layer.u > LARGEST:
        return f"{what}, too large to be compared"  # theirs stores every pair of positions
    with evaluating(swap.theirs, swap.ours), torch.no_grad():
        try:
            theirs, ours = swap.theirs(x), swap.ours(x)
        except RuntimeError as reason:
            raise CannotAdoptError(f"{what}: it cannot be run on maps {tuple(x.shape)}: {reason}") from reason
        error = float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-30))
        if not error <= TOLERANCES.get(x.dtype, HALF_TOLERANCE):
            raise CannotAdoptError(f"{what}: ours differs by {error:.1e} of the largest output")
        what = f"{what}, {' x '.join(map(str, x.shape[2:]))} feature maps: outputs within {error:.0e}"
        if x.device.type != "cpu":  # on other devices calls are asynchronous
            return what
        best = best_times({"theirs": lambda: swap.theirs(x), "ours": lambda: swap.ours(x)}, range(ROUNDS))
    return f"{what}, {faster(best['theirs'], best['ours'])}"


def compare_models(model: nn.Module, swaps: Sequence[Swap], example: Tensor) -> str:
    """A line of the report about the whole model, which still has its own layers afterwards."""

    def run(*, back: bool) -> Callable[[], object]:
        return lambda: put(model, swaps, back=back)(example)

    what = f"{type(model).__name__} on {tuple(example.shape)}"
    if example.device.type != "cpu":
        return f"{what}: {len(swaps)} layers adopted"
    layers = [layer for swap in swaps for layer in (swap.theirs, swap.ours)]
    try:
        with evaluating(model, *layers), torch.no_grad():
            best = best_times({"theirs": run(back=True), "ours": run(back=False)}, range(ROUNDS))
    finally:
        put(model, swaps, back=True)
    return f"{what}: {faster(best['theirs'], best['ours'])}"


def faster(theirs: float, ours: float) -> str:
    """
    >>> faster(0.004, 0.001)
    '4.00 ms -> 1.00 ms (4.0 times as fast)'
    """
    return f"{1e3 * theirs:.2f} ms -> {1e3 * ours:.2f} ms ({theirs / ours:.1f} times as fast)"
