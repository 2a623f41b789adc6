"""The oracle itself, against answers worked out by hand."""

import torch

from lambdanets.ops import reference


def test_grid_index_by_hand():
    index = reference.grid_index((2, 3), (2, 3), (3, 3), (1, 1), (1, 1))
    assert index[0].tolist() == [4, 5, -1, 7, 8, -1]  # the corner sees itself, right, below
    assert index[4].tolist() == [0, 1, 2, 3, 4, 5]  # the middle of the second row sees everything
    assert reference.grid_index((5,), (3,), (3,), (2,), (1,)).tolist() == [
        [1, 2, -1, -1, -1],
        [-1, 0, 1, 2, -1],
        [-1, -1, -1, 0, 1],
    ]
    assert reference.grid_index((5,), (5,), (3,), (1,), (2,))[1].tolist() == [-1, 1, -1, 2, -1]
    assert reference.grid_index((2,), (0,), (3,), (1,), (1,)).shape == (0, 2)


def test_past_by_hand():
    assert reference.past((2, 2), (2, 2), (1, 1), strict=False).tolist() == [
        [True, False, False, False],
        [True, True, False, False],
        [True, True, True, False],
        [True, True, True, True],
    ]
    assert reference.past((3,), (2,), (2,), strict=True).tolist() == [
        [False, False, False],
        [True, True, False],
    ]


def test_a_layer_by_hand():
    """Two positions, k = v = h = u = 1, scope 3, no norms: Y_n = q_n (sum_m softmax(K)_m V_m + sum_m R[m - n] V_m)."""
    x = torch.tensor([[[1.0], [2.0]]], dtype=torch.float64)
    weights = {
        "query.weight": torch.tensor([[3.0]]),
        "key.weight": torch.tensor([[0.0]]),
        "value.weight": torch.tensor([[10.0]]),
        "table.weight": torch.tensor([0.1, 1.0, 2.0]).reshape(3, 1, 1),
    }
    y = reference.lambda_layer(
        x,
        None,
        {name: w.double() for name, w in weights.items()},
        size=(2,),
        k=1,
        h=1,
        u=1,
        scope=(3,),
        stride=(1,),
        dilation=(1,),
        terms="both",
        key_norm="softmax",
        norm="none",
        causal=False,
        training=True,
    )
    # q = 3, 6; V = 10, 20; content (10 + 20) / 2 = 15; position 1 * 10 + 2 * 20 = 50 and 0.1 * 10 + 1 * 20 = 21.
    assert torch.allclose(y.flatten(), torch.tensor([3.0 * 65, 6.0 * 36], dtype=torch.float64))


def test_key_norms_by_hand():
    keys = torch.tensor([3.0, 4.0, 100.0]).reshape(1, 3, 1, 1)
    allowed = torch.tensor([[[True, True, False], [False, False, False]]])
    l2 = reference.normalised_keys(keys, allowed, "l2").flatten().tolist()
    assert torch.allclose(torch.tensor(l2), torch.tensor([0.6, 0.8, 0, 0, 0, 0]))
    softmax = reference.normalised_keys(keys, allowed, "softmax").flatten()
    assert torch.allclose(softmax, torch.tensor([0.26894142, 0.73105858, 0, 0, 0, 0]))
    none = reference.normalised_keys(keys, allowed, "none").flatten()
    assert none.tolist() == [3, 4, 0, 0, 0, 0]
