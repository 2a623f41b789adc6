"""A ViT knows where its patches are: by its mixer, or else by positions that are added."""

import pytest
import torch

from lambdanets import create_model
from lambdanets.models.patches import LearnedPositions, SinusoidalPositions
from lambdanets.nn import AbsolutePositions, AttentionMixer
from lambdanets.nn.registry import list_layers

SIDE, PATCH = 20, 4
TINY = dict(d=16, depth=1, h=2, ratio=2, patch=PATCH, image_size=SIDE, num_classes=7)
BLIND = {"linear", "efficient", "double", "squeeze", "film"}
both_rows = pytest.mark.parametrize("row", ["vit_micro_small", "lambda_vit_micro_small"])


def positions(row="lambda_vit_micro_small", **changes):
    return create_model(row, **TINY, **changes).positions


@both_rows
@pytest.mark.parametrize("mixer", list_layers("maps"))
def test_positions_follow_the_mixer(row, mixer):
    added = positions(row, mixer=mixer, pool="mean", mixer_options={})
    assert isinstance(added, LearnedPositions) == (mixer in BLIND)


@pytest.mark.parametrize("mixer", list_layers("maps"))
def test_the_place_of_a_patch_matters(mixer):
    """Two patches change places: without positions of any kind the mean would not notice."""
    torch.manual_seed(0)
    model = create_model("lambda_vit_micro_small", **{**TINY, "d": 64, "depth": 2}, mixer=mixer).double().eval()
    if model.positions is not None:
        torch.nn.init.normal_(model.positions.weight)
    x = torch.randn(1, 3, SIDE, SIDE, dtype=torch.float64)
    moved = x.clone()
    moved[..., :PATCH, :PATCH], moved[..., -PATCH:, -2 * PATCH : -PATCH] = (
        x[..., -PATCH:, -2 * PATCH : -PATCH],
        x[..., :PATCH, :PATCH],
    )
    assert (model(moved) - model(x)).abs().max() > 1e-8


def test_what_takes_places_from_a_mixer_brings_positions():
    assert isinstance(positions(mixer_options={"terms": "content"}), LearnedPositions)
    assert isinstance(positions(mixer="attention", mixer_options={"positions": "none"}), LearnedPositions)
    assert isinstance(positions(pool="class"), LearnedPositions)  # offsets in a row of tokens are not those of a grid
    assert isinstance(positions(mixer=lambda d: AttentionMixer(d, h=2)), LearnedPositions)


@both_rows
@pytest.mark.parametrize("mixer", ["lambda", "linear"])
def test_positions_that_are_asked_for_are_kept(row, mixer):
    assert isinstance(positions(row, mixer=mixer, positions="learned"), LearnedPositions)
    assert isinstance(positions(row, mixer=mixer, positions="sinusoidal"), SinusoidalPositions)
    assert positions(row, mixer=mixer, positions="none") is None


@pytest.mark.unchecked
def test_what_is_no_batch_of_images_is_named():
    model = create_model("vit_micro_small", **TINY)
    for shape in ((3, SIDE, SIDE), (2, 1, SIDE, SIDE)):
        with pytest.raises(ValueError, match=rf"ViT: images must be \(b, 3, height, width\), got shape \({shape[0]}, "):
            model(torch.zeros(shape))


def test_tokens_and_their_positions():
    added = AbsolutePositions(11, 5)
    x = torch.randn(2, 7, 5)
    assert torch.equal(added(x), x + added.weight[:7])
    added(x).sum().backward()
    assert torch.equal(added.weight.grad[:, 0], torch.tensor([2.0] * 7 + [0.0] * 4))


@pytest.mark.unchecked
def test_tokens_without_positions_are_refused():
    added = AbsolutePositions(11, 5)
    for shape in ((2, 13, 5), (2, 7, 3), (7, 5)):
        with pytest.raises(ValueError, match=r"AbsolutePositions: x must be \(b, n, 5\) with n up to size=11, got"):
            added(torch.zeros(shape))
    with pytest.raises(ValueError, match="AbsolutePositions: size must be a positive integer, got size=0"):
        AbsolutePositions(0, 5)


@pytest.mark.parametrize(("size", "ahead"), [((2, 8), 1), ((8, 2), 1), ((17, 1), 0)])
def test_positions_of_another_grid_are_not_loaded(size, ahead):
    positions = LearnedPositions(6, (4, 4), 1)
    state = LearnedPositions(6, size, ahead).state_dict()
    told = rf"weight was saved with size=\({size[0]}, {size[1]}\), ahead={ahead}, but this LearnedPositions has "
    with pytest.raises(RuntimeError, match=told + r"size=\(4, 4\), ahead=1; build the network .* with resize\(\)"):
        positions.load_state_dict(state)
    positions.load_state_dict(dict(state))  # without the record
    assert torch.equal(positions.weight, state["weight"])
    other = LearnedPositions(6, (3, 5), ahead)
    other.resize(size)
    other.load_state_dict(state)


def test_a_vit_refuses_the_tables_of_another_window():
    def vit(scope):
        return create_model("lambda_vit_micro_small", **TINY, mixer_options={"scope": scope})

    name = r"encoder\.blocks\.0\.mix\.layer\.layer\.table\.weight"
    with pytest.raises(RuntimeError, match=name + r" was saved with scope=\(3, 5\), but .* has scope=\(5, 3\)"):
        vit((5, 3)).load_state_dict(vit((3, 5)).state_dict())
    resized = vit((3, 5))
    resized.resize(2 * SIDE)
    resized.load_state_dict(vit((3, 5)).state_dict())
