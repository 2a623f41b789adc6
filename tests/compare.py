"""How far a layer or function is from the float64 oracle, in outputs and in every gradient."""

import os
from collections.abc import Mapping

import torch
from torch import Tensor

from lambdanets.ops import reference

# `make sweep` looks longer and at more.
SWEEP = os.environ.get("LAMBDANETS_SWEEP") == "1"
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def error(ours: Tensor, oracle: Tensor) -> float:
    """max |ours - oracle| / max(1, max |oracle|)."""
    assert ours.shape == oracle.shape, f"{tuple(ours.shape)} is not {tuple(oracle.shape)}"
    if oracle.numel() == 0:
        return 0.0
    return ((ours.double() - oracle).abs().max() / oracle.abs().max().clamp(min=1.0)).item()


def assert_close(
    ours: Mapping[str, Tensor],
    oracle: Mapping[str, Tensor],
    tolerance: float,
    naive: Mapping[str, Tensor] | None = None,
) -> None:
    """Within the tolerance, or within twice the error of `naive`, the same computed simply in the same precision."""
    assert ours.keys() == oracle.keys()
    errors = {name: error(ours[name], oracle[name]) for name in oracle}
    allowed = {n: tolerance if naive is None else max(tolerance, 2 * error(naive[n], oracle[n])) for n in oracle}
    # NaN compares false, so that a NaN fails too.
    wrong = {name: e for name, e in errors.items() if not e <= allowed[name]}
    assert not wrong, f"off by more than {tolerance}: {wrong}"


def with_gradients(function, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The output of `function(tensors)` and its gradients, under a fixed random cotangent."""
    leaves = {name: t.detach().clone().requires_grad_() for name, t in tensors.items()}
    output = function(leaves)
    generator = torch.Generator().manual_seed(1)
    cotangent = torch.randn(output.shape, generator=generator, dtype=torch.float64).to(output.dtype)
    gradients = torch.autograd.grad(output, list(leaves.values()), cotangent, allow_unused=True)
    results = {"output": output.detach()}
    for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
        results[f"d {name}"] = torch.zeros_like(leaf) if gradient is None else gradient
    return results


def randomise(module: torch.nn.Module, seed: int = 0) -> None:
    """No parameter or running statistic keeps a value at which a mistake could hide."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in sorted(module.state_dict(keep_vars=True).items()):
            if not tensor.is_floating_point():
                continue
            noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
            if name.endswith("running_var"):
                noise = noise.abs() + 0.5
            elif name.endswith("norm.weight"):
                noise = 1 + 0.3 * noise
            elif name.endswith(("query.weight", "key.weight", "value.weight")):
                noise = noise * tensor.shape[1] ** -0.5
            tensor.copy_(noise)


def layer_with_gradients(layer, x, context, **options) -> dict[str, Tensor]:
    """`with_gradients` of a layer with respect to its inputs and parameters."""
    inputs = {"x": x} if context is None else {"x": x, "context": context}
    parameters = dict(layer.named_parameters())

    def run(leaves):
        weights = {name: leaves[name] for name in parameters}
        return torch.func.functional_call(layer, weights, (leaves["x"], leaves.get("context")), options)

    return with_gradients(run, inputs | parameters)


def oracle_with_gradients(
    layer, x, context, *, tokens: bool, mask=None, relation=None, dtype=torch.float64, **arguments
):
    """The same from `reference.lambda_layer` in float64, in the layer's layout and with its state_dict's tensors."""
    buffers = {name: b.to(dtype) for name, b in layer.named_buffers()}
    inputs = {"x": x} if context is None else {"x": x, "context": context}
    tensors = {name: t.to(dtype) for name, t in (inputs | dict(layer.named_parameters())).items()}
    size = x.shape[1:-1] if tokens else x.shape[2:]
    context_size = None if context is None else context.shape[1:-1] if tokens else context.shape[2:]

    def flat(t):
        return t if t is None or tokens else t.flatten(2).transpose(1, 2)

    def run(leaves):
        y = reference.lambda_layer(
            flat(leaves["x"]),
            flat(leaves.get("context")),
            buffers | leaves,
            size=size,
            context_size=context_size,
            mask=mask,
            relation=relation,
            training=layer.training,
            **arguments,
        )
        if tokens:
            return y
        strided = [len(range(0, n, s)) for n, s in zip(size, arguments["stride"], strict=True)]
        return y.transpose(1, 2).reshape(len(x), -1, *strided)

    return with_gradients(run, tensors)


class LargestTensor(torch.utils._python_dispatch.TorchDispatchMode):
    """Notes the size of every tensor that an operation makes."""

    def __init__(self, sizes):
        super().__init__()
        self.sizes = sizes

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.sizes.append(result.untyped_storage().nbytes() // result.element_size())
        return result
