"""A layer is timed only when it is right."""

import pytest
import torch

from lambdanets.bench.gate import check
from lambdanets.bench.job import CannotBenchmarkError, untracked
from lambdanets.bench.layers import job
from lambdanets.bench.peers import Shape
from lambdanets.nn import LambdaLayer2d


class WrongOutput(LambdaLayer2d):
    def forward(self, x, *args, **kwargs):
        return super().forward(x, *args, **kwargs) * (1 + 1e-4)


class WrongGradient(LambdaLayer2d):
    """Right forward, but a tenth of the input's gradient is missing."""

    def forward(self, x, *args, **kwargs):
        return super().forward(0.9 * x + 0.1 * x.detach(), *args, **kwargs)


class NotANumber(LambdaLayer2d):
    def forward(self, x, *args, **kwargs):
        return super().forward(x, *args, **kwargs) * float("nan")


@pytest.mark.parametrize("options", [dict(scope=5), dict(scope=23), dict(scope=3, u=4)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_right_layer_passes(options, layout):
    x = torch.randn(2, 12, 11, 7).contiguous(memory_format=layout)
    layer = LambdaLayer2d(12, **options)
    assert check(layer, x) < 1e-5
    assert layer.training, "the layer is left as it was"


@pytest.mark.parametrize("wrong", [WrongOutput, WrongGradient, NotANumber])
def test_a_wrong_layer_is_refused(wrong):
    with pytest.raises(CannotBenchmarkError, match=rf"{wrong.__name__}\(12\) on 11 x 7 differs by .*: not timed"):
        check(wrong(12, scope=5), torch.randn(2, 12, 11, 7))


def test_the_benchmark_stands_behind_the_gate(monkeypatch):
    monkeypatch.setattr("lambdanets.bench.peers.LambdaLayer2d", WrongOutput)
    with pytest.raises(CannotBenchmarkError, match="not timed"):
        job(Shape(7, 16, b=2), "forward", rounds=1, with_memory=False).run(untracked)
