"""Tables: their sizes, sharing and resizing."""

import pytest
import torch

from lambdanets import LambdaLayer1d, LambdaLayer2d, LambdaLayer3d, LambdaMixer


@pytest.mark.parametrize(
    ("layer", "arguments", "rows"),
    [
        (LambdaLayer2d, {}, 23 * 23),
        (LambdaLayer2d, {"size": 7}, 13 * 13),
        (LambdaLayer2d, {"size": (7, 56)}, 13 * 23),
        (LambdaLayer2d, {"scope": None, "size": (5, 9)}, 9 * 17),
        (LambdaLayer1d, {"scope": 65}, 65),
        (LambdaMixer, {"scope": None, "size": 100}, 199),
        (LambdaLayer3d, {"scope": (3, 5, 7)}, 105),
        (LambdaMixer, {"relations": 11}, 11),
    ],
)
def test_rows(layer, arguments, rows):
    assert layer(8, k=5, u=3, **arguments).table.weight.shape == (rows, 5, 3)


def test_initialisation_is_the_papers():
    torch.manual_seed(0)
    layer = LambdaLayer2d(256, 512, d_context=64, k=16)
    assert layer.table.weight.std().item() == pytest.approx(1, rel=0.05)
    assert layer.query.weight.std().item() == pytest.approx(256**-0.5, rel=0.05)
    assert layer.key.weight.std().item() == pytest.approx(64**-0.5, rel=0.1)
    assert layer.value.weight.std().item() == pytest.approx(64**-0.5, rel=0.05)
    assert LambdaLayer2d(64, table_std=0.02).table.weight.std().item() == pytest.approx(0.02, rel=0.05)


def test_a_shared_table_is_one_parameter():
    first = LambdaLayer2d(8, size=9)
    second = LambdaLayer2d(16, 32, size=9, table=first.table)
    both = torch.nn.ModuleList([first, second])
    assert sum(p is first.table.weight for p in both.parameters()) == 1
    second(torch.randn(2, 16, 9, 9)).square().sum().backward()
    assert first.table.weight.grad.abs().sum() > 0
    both.load_state_dict(both.state_dict())
    assert first.table.weight is second.table.weight


def test_resizing_one_layer_resizes_all_that_share_its_table():
    first = LambdaLayer2d(8, scope=None, size=5)
    second = LambdaLayer2d(8, scope=None, size=5, table=first.table)
    second.resize((6, 9))
    assert first.table.weight is second.table.weight
    assert first.table.weight.shape[0] == 11 * 17
    assert first(torch.randn(2, 8, 6, 9)).shape == (2, 8, 6, 9)


def test_a_global_layer_serves_any_smaller_map_and_larger_ones_after_resize():
    layer = LambdaLayer2d(8, scope=None, size=(5, 7)).eval()
    small = torch.randn(2, 8, 3, 7)
    before = layer(small)
    layer.resize((5, 7))
    assert torch.equal(layer(small), before)
    layer.resize((10, 14))
    assert layer(torch.randn(2, 8, 10, 14)).isfinite().all()


def test_a_scope_that_was_cut_still_runs_on_larger_maps():
    """It uses the window that it has, until the table is resized, and then the scope that was asked for."""
    layer = LambdaLayer2d(8, scope=23, size=7)
    assert layer(torch.randn(2, 8, 20, 20)).shape == (2, 8, 20, 20)
    layer.resize(20)
    assert layer.table.scope == (23, 23)


def test_a_resized_state_loads_into_a_layer_of_that_size():
    layer = LambdaLayer2d(8, scope=None, size=5)
    layer.resize(9)
    other = LambdaLayer2d(8, scope=None, size=9)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other.table.weight, layer.table.weight)


def test_names_in_the_state_dict_are_public():
    layer = LambdaLayer2d(8, position_bias=True)
    statistics = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    norms = [f"{norm}.{name}" for norm in ("query_norm", "value_norm") for name in statistics]
    projections = ["query.weight", "key.weight", "value.weight"]
    assert set(layer.state_dict()) == {*projections, *norms, "table.weight", "position_bias"}
    causal = LambdaMixer(8, causal=True)
    assert set(causal.state_dict()) == {
        *projections,
        "query_norm.weight",
        "value_norm.weight",
        "table.weight",
    }
    assert set(LambdaMixer(8, terms="content", norm="none").state_dict()) == set(projections)
    assert set(LambdaMixer(8, terms="position", norm="none").state_dict()) == {
        "query.weight",
        "value.weight",
        "table.weight",
    }


def test_resizing_a_window_smaller_than_the_map_keeps_its_offsets():
    layer = LambdaLayer2d(8, scope=(5, 7)).eval()
    x = torch.randn(2, 8, 2, 9)
    before = layer(x)
    layer.resize((2, 9))
    assert layer.table.scope == (3, 7)
    assert torch.allclose(layer(x), before, atol=1e-6)


def test_every_parameter_has_a_module_that_can_start_it_anew():
    """As deferred initialisation does it: on the meta device first, then memory, then reset_parameters everywhere."""
    with torch.device("meta"):
        layer = LambdaLayer2d(256, position_bias=True, table_std=0.5)
    layer.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in layer.state_dict().values():
            tensor.fill_(77)
    for module in layer.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    assert not any((t == 77).any() for t in layer.state_dict().values())
    assert layer.query.weight.std().item() == pytest.approx(256**-0.5, rel=0.05)
    assert layer.table.weight.std().item() == pytest.approx(0.5, rel=0.05)
