"""Checks layers against the reference before they are timed, because the time of a wrong layer means nothing."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from lambdanets.bench.job import CannotBenchmarkError
from lambdanets.nn import LambdaLayer2d
from lambdanets.nn.tables import RelativeTable
from lambdanets.ops import reference

TOLERANCE = 1e-5


def check(layer: LambdaLayer2d, x: Tensor, looks: int = 7) -> float:
    """The largest difference to the reference at a few positions of the timed maps.

    It compares the outputs at these positions, and the gradients of x and every parameter for these outputs. The
    reference takes the positions as queries, with the whole map as context and every offset written out as a relation.
    Norms use running statistics, because batch statistics would need every position as a query.
    """
    x = x[:1]
    height, width = x.shape[2:]
    at = torch.linspace(0, height * width - 1, looks).long()
    cotangent = torch.randn(1, looks, layer.d_out, generator=torch.Generator().manual_seed(0))
    was_training = layer.training
    layer.train()
    with torch.no_grad():
        layer(x)  # so that running statistics are not zeros and ones, which could hide an error
    layer.eval()
    names = [name for name, _ in layer.named_parameters()]

    leaf = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    ours = layer(leaf).flatten(2).transpose(1, 2)[:, at]
    our_gradients = torch.autograd.grad(ours, [leaf, *layer.parameters()], cotangent)

    state = {name: tensor.detach().double() for name, tensor in layer.state_dict().items()}
    for name in names:
        state[name].requires_grad_()
    exact_leaf = x.detach().double().requires_grad_()
    tokens = exact_leaf.flatten(2).transpose(1, 2)
    exact = oracle(layer, tokens[:, at], tokens, state, window_rows(height, width, layer, at), training=False)
    exact_gradients = torch.autograd.grad(exact, [exact_leaf, *(state[name] for name in names)], cotangent.double())
    layer.train(was_training)

    return refuse_if_wrong(layer, (height, width), [ours, *our_gradients], [exact, *exact_gradients])


def check_training(layer: LambdaLayer2d, x: Tensor) -> float:
    """The largest difference in training mode, with batch statistics, on two small corners of the timed maps.

    Every position is a query there, so the reference has the same batch statistics.
    """
    x = x[:2, :, :5, :7]
    cotangent = torch.randn(x.shape[0], layer.d_out, *x.shape[2:], generator=torch.Generator().manual_seed(0))
    names = [name for name, _ in layer.named_parameters()]
    was_training, kept = layer.training, {name: t.clone() for name, t in layer.state_dict().items()}
    layer.train()
    leaf = x.detach().clone().requires_grad_()
    ours = layer(leaf)
    our_gradients = torch.autograd.grad(ours, [leaf, *layer.parameters()], cotangent)
    layer.load_state_dict(kept)
    layer.train(was_training)

    state = {name: tensor.double() for name, tensor in kept.items()}
    for name in names:
        state[name].requires_grad_()
    exact_leaf = x.detach().double().requires_grad_()
    tokens, (height, width) = exact_leaf.flatten(2).transpose(1, 2), x.shape[2:]
    at = torch.arange(height * width)
    exact = oracle(layer, tokens, tokens, state, window_rows(height, width, layer, at), training=True)
    exact = exact.transpose(1, 2).unflatten(2, (height, width))
    exact_gradients = torch.autograd.grad(exact, [exact_leaf, *(state[name] for name in names)], cotangent.double())
    return refuse_if_wrong(layer, (height, width), [ours, *our_gradients], [exact, *exact_gradients])


def check_layers(networks: Iterable[nn.Module]) -> None:
    """Check one lambda layer of each kind and width, on a map that its table covers."""
    kinds = {}
    for layer in (module for network in networks for module in network.modules()):
        if isinstance(layer, LambdaLayer2d) and isinstance(layer.table, RelativeTable):
            kinds[layer.d_in, layer.k, layer.table.wanted] = layer, layer.table
    for layer, table in kinds.values():
        x = torch.randn(2, layer.d_in, *(table.size if table.is_global and table.size else (14, 14)))
        check(layer, x)
        check_training(layer, x)


def oracle(
    layer: LambdaLayer2d, x: Tensor, context: Tensor, state: Mapping[str, Tensor], rows: Tensor, *, training: bool
) -> Tensor:
    """The reference output for the queries of x, with `rows` of the table as a relation."""
    return reference.lambda_layer(
        x,
        context,
        state,
        size=(x.shape[1],),
        context_size=(context.shape[1],),
        k=layer.k,
        h=layer.h,
        u=layer.u,
        scope=None,
        stride=(1,),
        dilation=(1,),
        terms="both",
        key_norm="softmax",
        norm="batch",
        causal=False,
        relation=rows,
        training=training,
    )


def refuse_if_wrong(
    layer: LambdaLayer2d, size: tuple[int, ...], ours: Sequence[Tensor], exact: Sequence[Tensor]
) -> float:
    error = max(distance(mine, true) for mine, true in zip(ours, exact, strict=True))
    if not error <= TOLERANCE:  # a NaN is wrong too
        raise CannotBenchmarkError(
            f"{type(layer).__name__}({layer.d_in}) on {size[0]} x {size[1]} differs by {error:.1e} from the reference, "
            f"more than {TOLERANCE:.0e}: not timed"
        )
    return error


def agree(answers: Mapping[str, Tensor], chosen: str) -> None:
    """Check that several algorithms give the same output."""
    scale = answers[chosen].abs().max()
    for name, y in answers.items():
        if not (y - answers[chosen]).abs().max() <= 1e-4 * scale:
            raise CannotBenchmarkError(f"{name} and {chosen} differ: not timed")


def window_rows(height: int, width: int, layer: LambdaLayer2d, at: Tensor) -> Tensor:
    """The row of the table for each pair of a position in `at` and one of the map; -1 for none."""
    assert layer.table is not None
    side = round(layer.table.weight.shape[0] ** 0.5)
    place = torch.arange(height * width)
    down = place // width - (at // width)[:, None] + side // 2
    right = place % width - (at % width)[:, None] + side // 2
    inside = (down >= 0) & (down < side) & (right >= 0) & (right < side)
    return torch.where(inside, down * side + right, -1)


def distance(ours: Tensor, exact: Tensor) -> float:
    """The largest difference, relative to the largest number if that is above 1; NaN if there is one."""
    return float((ours.detach() - exact.detach()).abs().max() / exact.detach().abs().max().clamp(min=1))
