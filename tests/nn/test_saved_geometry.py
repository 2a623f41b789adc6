"""State dicts record the geometry that shapes do not show, and a module refuses those that record another."""

import copy
import io
import pickle
from itertools import combinations, product

import pytest
import torch
from torch import nn
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present

from compare import randomise
from lambdanets import LambdaLayer1d, LambdaLayer2d, LambdaLayer3d, LambdaMixer, create_layer
from lambdanets.nn.arguments import keywords
from lambdanets.nn.registry import LAYERS, layer_class

D = 16
# Options that different geometries have; those of a layout where it matters.
OPTIONS = {
    "h": (2, 4),
    "k": (8, 4),
    "u": (1, 2),
    "g": (1, 2, 4),
    "share": (4, 8),
    "terms": ("both", "content", "position"),
    "kind": ("pairwise", "patchwise"),
    "positions": ("relative", "none"),
    "rank": (3,),
    "scope": {"maps": ((3, 5), (5, 3), (1, 15), None), "tokens": (15, None)},
    "size": {"maps": ((3, 5), (5, 3)), "tokens": (8,)},
}
# Layers that have different geometries of equal shapes; `augmented` shows its heads in the depth of its tables.
ALIKE = {
    "lambda",
    "attention",
    "multiquery",
    "axial",
    "local",
    "relation",
    "vector",
    "linear",
    "efficient",
    "projected",
}
LAYOUTS = [
    (name, layout) for name, row in LAYERS.items() for layout in ("maps", "tokens") if getattr(row, layout) is not None
]


def variants(name, layout):
    """Every layer of a name that the options can make."""
    known = {option: values for option, values in OPTIONS.items() if option in keywords(layer_class(name, layout))}
    choices = [values[layout] if isinstance(values, dict) else values for values in known.values()]
    for chosen in product(*choices):
        options = dict(zip(known, chosen, strict=True))
        if options.get("h", 1) % options.get("g", 1) == 0 and (name == "lambda" or options.get("scope", 1) is not None):
            size = options.pop("size", None)
            layer = create_layer(name, D, layout=layout, size=size, **options).eval()
            randomise(layer)
            yield options, layer


def is_unchecked(name, one, other):
    """Windows that no tensor depends on: the same weights serve any of them."""
    differing = {option for option in one if one[option] != other[option]}
    window_alone = differing == {"scope"}
    return window_alone and (name, one.get("kind"), one.get("positions")) in {
        ("local", None, "none"),
        ("vector", "pairwise", None),
    }


def refuses(layer, state, **options):
    try:
        layer.load_state_dict(state, **options)
    except RuntimeError as error:
        return "was saved with" in str(error)
    return False


@pytest.mark.parametrize(("name", "layout"), LAYOUTS)
def test_equal_shapes_load_if_and_only_if_outputs_are_the_same(name, layout):
    made = list(variants(name, layout))
    x = torch.randn((2, 8, D) if layout == "tokens" else (2, D, 3, 3), generator=torch.Generator().manual_seed(0))
    shapes = [{name: t.shape for name, t in layer.state_dict().items()} for _, layer in made]
    found = set()
    for one, other in combinations(range(len(made)), 2):
        (first, theirs), (second, ours) = made[one], made[other]
        if shapes[one] != shapes[other]:
            continue
        ours = copy.deepcopy(ours)
        ours.load_state_dict(dict(theirs.state_dict()))  # without the record
        same = torch.allclose(ours(x), theirs(x), rtol=1e-4, atol=1e-4)
        refused = refuses(ours, theirs.state_dict())
        assert refused == (not same and not is_unchecked(name, first, second)), (first, second)
        found.add(refused)
    assert (True in found) == (name in ALIKE), "a layer has, or no longer has, different geometries of equal shapes"


# A layer and one of another geometry with the same shapes, what the record says of each, and the tensor that it names.
TWINS = {
    "window": (
        lambda: LambdaLayer2d(8, scope=(3, 5)),
        lambda: LambdaLayer2d(8, scope=(5, 3)),
        "table.weight was saved with scope=(3, 5), but this RelativeTable has scope=(5, 3)",
    ),
    "line": (
        lambda: LambdaLayer2d(8, scope=(3, 5)),
        lambda: LambdaLayer2d(8, scope=(1, 15)),
        "table.weight was saved with scope=(3, 5), but this RelativeTable has scope=(1, 15)",
    ),
    "global": (
        lambda: LambdaLayer2d(8, scope=None, size=(9, 11)),
        lambda: LambdaLayer2d(8, scope=None, size=(11, 9)),
        "table.weight was saved with scope=None, size=(9, 11), but this RelativeTable has scope=None, size=(11, 9)",
    ),
    "axes": (
        lambda: LambdaLayer1d(8, scope=45),
        lambda: LambdaLayer3d(8, scope=(3, 3, 5)),
        "table.weight was saved with scope=(45,), but this RelativeTable has scope=(3, 3, 5)",
    ),
    "relations": (
        lambda: LambdaLayer2d(8, relations=15),
        lambda: LambdaLayer2d(8, scope=(3, 5)),
        "table.weight was saved with relations=15, but this RelativeTable has scope=(3, 5)",
    ),
    "lambda heads": (
        lambda: LambdaMixer(8, terms="content", h=2, k=8, u=1),
        lambda: LambdaMixer(8, terms="content", h=4, k=4, u=2),
        "query.weight was saved with h=2, k=8, u=1, but this LambdaMixer has h=4, k=4, u=2",
    ),
    "attention heads": (
        lambda: create_layer("attention", 8, layout="tokens", h=2),
        lambda: create_layer("attention", 8, layout="tokens", h=4),
        "heads.query.weight was saved with h=2, k=4, g=2, but this Heads has h=4, k=2, g=4",
    ),
    "patchwise": (
        lambda: create_layer("vector", 8, scope=(3, 5), share=4),
        lambda: create_layer("vector", 8, scope=(5, 3), share=4),
        "relate.weight was saved with scope=(3, 5), but this Vector2d has scope=(5, 3)",
    ),
    "relation": (
        lambda: create_layer("relation", 8, scope=3, share=4),
        lambda: create_layer("relation", 8, scope=5, share=4),
        "prior.0.weight was saved with scope=(3, 3), but this Relation2d has scope=(5, 5)",
    ),
}
every_twin = pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS)


def message_of(layer, state, **options):
    with pytest.raises(RuntimeError) as caught:
        layer.load_state_dict(state, **options)
    return str(caught.value)


def through_torch_save(state):
    file = io.BytesIO()
    torch.save({"state_dict": state}, file)
    file.seek(0)
    return torch.load(file, weights_only=True)["state_dict"]


@pytest.mark.unchecked
@every_twin
@pytest.mark.parametrize(
    "travel",
    [
        lambda state: state,
        through_torch_save,
        copy.copy,
        copy.deepcopy,
        lambda state: pickle.loads(pickle.dumps(state)),
    ],
    ids=["as it is", "torch.save", "copy", "deepcopy", "pickle"],
)
def test_another_geometry_is_refused_with_both(twin, travel):
    saved, other, message = twin
    state = travel(saved().state_dict())
    for options in ({}, {"strict": False}, {"assign": True}):
        assert f"{message}; build the layer with the saved values before loading" in message_of(
            other(), state, **options
        )
        assert not any(saved().load_state_dict(state, **options))


@every_twin
def test_a_state_dict_without_a_record_is_checked_by_torch_alone(twin):
    """As older versions wrote them, and formats that keep names and tensors only."""
    saved, other, _ = twin
    state = saved().state_dict()
    without = copy.deepcopy(state)
    for record in without._metadata.values():
        record.pop("geometry", None)
    safetensors = pytest.importorskip("safetensors.torch")
    read = safetensors.load(safetensors.save(dict(state)))
    for older in (without, dict(state), read):
        assert not any(other().load_state_dict(older))
    with pytest.raises(RuntimeError, match=r"size mismatch for query\.weight"):
        LambdaLayer2d(8, scope=(3, 5), k=7).load_state_dict(dict(LambdaLayer2d(8, scope=(3, 5)).state_dict()))


@every_twin
def test_wrapped_and_on_the_meta_device(twin):
    saved, other, message = twin
    state = nn.ModuleDict({"module": saved()}).state_dict()
    assert f"module.{message}" in message_of(nn.ModuleDict({"module": other()}), state)
    consume_prefix_in_state_dict_if_present(state, "module.")  # as users of DistributedDataParallel do
    assert message in message_of(other(), state)
    with torch.device("meta"):
        mine, others = saved(), other()
    assert message in message_of(others, state, assign=True)
    mine.load_state_dict(state, assign=True)
    assert not any(t.is_meta for t in mine.state_dict().values())


@pytest.mark.unchecked
@every_twin
def test_compiled(twin):
    saved, other, message = twin
    compiled, others = (torch.compile(layer(), backend="eager") for layer in (saved, other))
    assert message in message_of(others, compiled.state_dict())
    assert not any(torch.compile(saved(), backend="eager").load_state_dict(compiled.state_dict()))


def test_the_names_in_a_state_dict_do_not_change():
    layer = LambdaLayer2d(8, norm="none")
    assert set(layer.state_dict()) == {"query.weight", "key.weight", "value.weight", "table.weight"}
    assert layer.state_dict(destination={}, prefix="its.").keys() == {f"its.{name}" for name in layer.state_dict()}


def test_a_window_and_a_global_table_of_the_same_rows_are_one_geometry():
    state = LambdaLayer2d(8, scope=None, size=(3, 4)).state_dict()
    LambdaLayer2d(8, scope=(5, 7)).load_state_dict(state)
    LambdaLayer2d(8, scope=(5, 23), size=(9, 4)).load_state_dict(state)
    LambdaLayer2d(8, scope=(5, 7), dilation=2, stride=2, key_norm="l2").load_state_dict(state)  # not part of it


def test_after_a_resize_the_new_geometry_counts():
    layer, before = (LambdaLayer2d(8, scope=None, size=(5, 9)) for _ in range(2))
    layer.resize((9, 5))
    LambdaLayer2d(8, scope=None, size=(9, 5)).load_state_dict(layer.state_dict())
    message = "saved with scope=None, size=(9, 5), but this RelativeTable has scope=None, size=(5, 9)"
    assert message in message_of(before, layer.state_dict())
    assert "and fit it to other maps with resize() afterwards" in message_of(before, layer.state_dict())
    before.resize((9, 5))
    before.load_state_dict(layer.state_dict())
    assert torch.equal(before.table.weight, layer.table.weight)


def test_another_number_of_rows_is_named_as_a_scope_and_as_a_shape():
    told = message_of(LambdaLayer2d(8, scope=7), LambdaLayer2d(8, scope=5).state_dict())
    assert "table.weight was saved with scope=(5, 5), but this RelativeTable has scope=(7, 7)" in told
    assert "size mismatch for table.weight" in told


def test_every_layer_that_shares_a_table_has_the_record():
    def both(scope):
        first = LambdaLayer2d(8, scope=scope)
        return nn.ModuleList([first, LambdaLayer2d(8, scope=scope, table=first.table)])

    told = message_of(both((5, 3)), both((3, 5)).state_dict())
    assert "0.table.weight was saved with" in told
    assert "1.table.weight was saved with" in told
    model = both((3, 5))
    model.load_state_dict(both((3, 5)).state_dict())
    assert model[0].table.weight is model[1].table.weight


def test_tensors_that_were_removed_or_replaced_are_not_what_was_recorded():
    """As for transfer: the rest of the weights is loaded, or the table was resized by hand."""
    layer = LambdaLayer2d(8, scope=(5, 3))
    state = LambdaLayer2d(8, scope=(3, 5)).state_dict()
    del state["table.weight"]
    assert layer.load_state_dict(state, strict=False).missing_keys == ["table.weight"]
    larger = LambdaLayer2d(8, scope=(7, 3))
    state["table.weight"] = torch.randn_like(larger.table.weight)
    larger.load_state_dict(state)
    assert torch.equal(larger.table.weight, state["table.weight"])
    few, many = (create_layer("attention", 8, layout="tokens", h=2, g=g) for g in (1, 2))
    state = few.state_dict()
    assert "saved with h=2, k=4, g=1" in message_of(many, state)
    for name in ("heads.key.weight", "heads.value.weight"):
        state[name] = state[name].repeat(2, 1)
    many.load_state_dict(state)
