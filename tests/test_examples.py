"""The examples run, and what they print is so."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name: str):
    specification = spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_fully_connected_and_convolution_are_attention():
    assert all(difference < 1e-12 for difference in example("convolution_as_attention").main().values())


def test_positions_tell_the_giver_from_the_receiver():
    without, with_ = example("giver_and_receiver").main().values()
    assert without < 1e-6
    assert with_ > 1e-2


def test_temperature(tmp_path):
    plain, scaled, gaps = example("temperature").main(tmp_path / "temperature.png").values()
    assert plain[-1] < 0.05  # the gradient is gone at depth 1024
    assert min(scaled) > 0.9 * max(scaled) > 0.5  # and stays where it was if scores are scaled
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 1e-3
    assert (tmp_path / "temperature.png").read_bytes().startswith(b"\x89PNG")


def test_soft_dictionary():
    hard, soft, mean, truth = example("soft_dictionary").main().values()
    assert abs(soft - truth) < 0.2 < abs(hard - truth)
    assert mean == pytest.approx(15.0, abs=1e-4)


def test_permutation_and_translation():
    *same, other = example("permutation_and_translation").main().values()
    assert max(same) < 1e-5
    assert other > 1e-3


def test_a_digit_is_written(tmp_path):
    example("digit_image").main(tmp_path / "digit.png")
    assert (tmp_path / "digit.png").read_bytes().startswith(b"\x89PNG")


def test_vits_learn():
    accuracies = example("lambda_vit").main(epochs=1)
    assert len(accuracies) == 2
    assert all(0.1 < accuracy <= 1 for accuracy in accuracies.values())  # better than by chance after one epoch
