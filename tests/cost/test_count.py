"""FLOPs are those of the paper's tables, counted on networks without memory."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lambdanets import LambdaLayer1d, LambdaMixer, create_model
from lambdanets.cost import count, profile, totals

# Billions, LambdaResNet-50 at 224 by the rules that fit the published tables.
FLOPS = [
    (5.024, {"terms": "content"}),
    (11.889, {"terms": "position"}),
    (12.026, {}),
    (5.714, {"placement": "CLLL", "scope": 3}),
    (10.012, {"placement": "CLLL"}),
    (19.408, {"placement": "CLLL", "scope": None}),
]


@pytest.mark.parametrize(("billions", "changes"), FLOPS)
def test_flops(billions, changes):
    with torch.device("meta"):
        model = create_model("lambda_resnet50", **changes)
    _, flops = totals(count(model, (1, 3, 224, 224)))
    assert round(flops / 1e9, 3) == billions


def test_parameters_are_all_there_once():
    model = create_model("lambda_resnet26_small", share_tables=True)
    model.classifier.bias.requires_grad_(False)
    parameters, _ = totals(count(model, (1, 3, 32, 32)))
    assert parameters == sum(p.numel() for p in model.parameters() if p.requires_grad)


def test_the_network_is_left_alone():
    model = create_model("resnet14_small")
    before = {name: t.clone() for name, t in model.state_dict().items()}
    count(model, (2, 3, 16, 16))
    assert model.training
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    assert not any(m._forward_hooks for m in model.modules())


def test_a_layer_alone():
    layer = LambdaLayer1d(8, k=2, h=2, u=3, scope=5)
    (_, flops), n, v = totals(count(layer, (7, 8, 11))), 11, 4
    projections = n * 8 * (2 * 2 + 2 * 3 + v * 3)
    content, position = n * 2 * v * 3, n * 5 * 2 * v * 3
    assert flops == 2 * 7 * (projections + content + position + 2 * n * 2 * 2 * v)


def test_another_context():
    class Reader(nn.Module):
        def __init__(self, **how):
            super().__init__()
            self.mixer, self.how = LambdaMixer(16, d_context=8, k=4, h=2, terms="content"), how

        def forward(self, x):
            context = x[:, :5, :8]
            return self.mixer(x, context=context) if self.how else self.mixer(x, context)

    n, m, v = 7, 5, 8
    expected = n * 16 * 2 * 4 + m * 8 * (v + 4) + m * 4 * v + n * 2 * 4 * v
    for reader in (Reader(), Reader(by="name")):
        assert totals(count(reader, (3, n, 16)))[1] == 2 * 3 * expected


def test_transposed_convolutions_and_tokens():
    assert totals(count(nn.ConvTranspose2d(4, 6, 3, stride=2), (2, 4, 5, 7)))[1] == 2 * 2 * 5 * 7 * 4 * 6 * 9
    model = nn.Sequential(nn.Embedding(10, 32), LambdaMixer(32, causal=True))
    assert profile(model, torch.randint(10, (2, 12)), rounds=1)[-1].flops > 0


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.MultiheadAttention(8, 2, batch_first=True), (3, 5, 8)),
        (nn.MultiheadAttention(8, 2), (5, 3, 8)),
        (nn.MultiheadAttention(8, 2), (5, 8)),
        (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (3, 5, 8)),
    ],
    ids=["batch first", "tokens first", "one example", "inside"],
)
def test_torchs_attention_as_torch_counts_it(module, shape):
    class To(nn.Module):
        def __init__(self):
            super().__init__()
            self.module = module.train()

        def forward(self, x):
            return module_call(self.module, x)

    def module_call(module, x):
        return module(x, x, x) if isinstance(module, nn.MultiheadAttention) else module(x)

    with FlopCounterMode(display=False) as counter:
        module_call(module.train(), torch.randn(shape))
    assert totals(count(To(), shape))[1] == counter.get_total_flops()


def test_torchs_attention_on_another_context():
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.read = nn.MultiheadAttention(8, 2, kdim=4, vdim=6, batch_first=True)

        def forward(self, x):
            return self.read(x, x[:, :3, :4], x[:, :3, :6])

    n, m = 5, 3
    assert totals(count(Reader(), (2, n, 8)))[1] == 2 * 2 * (2 * n * 64 + m * (4 + 6) * 8 + 2 * n * m * 8)


def test_recurrent_layers():
    tokens = 3 * 5
    (_, flops) = totals(count(nn.LSTM(4, 6, num_layers=2, bidirectional=True), (5, 3, 4)))
    assert flops == 2 * tokens * 2 * 4 * 6 * ((4 + 6) + (2 * 6 + 6))
    assert totals(count(nn.GRUCell(4, 6), (3, 4)))[1] == 2 * 3 * 3 * 6 * (4 + 6)


def test_networks_that_need_numbers():
    class Looking(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.shift = nn.Linear(4, 6), torch.ones(6)  # which is no buffer

        def forward(self, x):
            return self.linear(x) * float(x.sum().item()) + self.shift

    assert totals(count(Looking(), (3, 4))) == (30, 2 * 3 * 4 * 6)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        count(Looking(), (3, 5))


def test_the_precision_of_the_network_does_not_matter():
    model = create_model("lambda_resnet14_small")
    assert totals(count(model.double(), (1, 3, 32, 32))) == totals(count(model.float(), (1, 3, 32, 32)))
