"""Pictures of a run are whole files, say what is in the numbers, and none of their texts covers another."""

import math
import warnings
from itertools import combinations, pairwise

import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from lambdanets.tasks.classification import Classification
from lambdanets.tasks.classification.confusion import confusion, draw_confusion, worst_pairs
from lambdanets.tasks.classification.mistakes import Mistake, draw_mistakes, mistakes
from lambdanets.train.curves import curves, draw_curves, spread
from lambdanets.train.figures import percent, printable, shorten, width

PANELS = Classification.panels

LONG = "greater prairie chicken, of the WWWWWWWW western hemisphere, kind {:04d}"
ODD = ["猫科动物" * 9, "ÄÖÜ $x$ and $y_", "half \udcff of a letter", "two\nlines\tand a tab", "🐈", "", r"a \ and a $"]


def history(epochs: int, every: int = 1, top5: bool = True) -> list[dict[str, float | int]]:
    rows: list[dict[str, float | int]] = []
    for epoch in range(1, epochs + 1):
        rows.append({"epoch": epoch, "step": 7 * epoch, "lr": 0.003 / epoch, "train_loss": 1 + 1 / epoch})
        if epoch % every == 0:
            rows[-1] |= {"val_loss": 1.01 + 1 / epoch, "val_accuracy": 0.9 - 0.5 / epoch}
            rows[-1] |= {"val_accuracy_top5": 0.99 - 0.5 / epoch} if top5 else {}
    return rows


def confused(k: int, images: int = 31) -> torch.Tensor:
    """Four of five images right; the others taken for the next two classes."""
    right = torch.eye(k, dtype=torch.int64)
    return (images - 6) * right + 4 * right.roll(1, 1) + 2 * right.roll(2, 1)


def mistake(n: int = 0, shape: tuple[int, int, int] = (1, 8, 8), **changes: object) -> Mistake:
    values = dict(name=f"test/{n}", label="shirt", guess="T-shirt", guess_probability=0.87, label_probability=0.03)
    return Mistake(torch.randint(256, shape, dtype=torch.uint8), **{**values, **changes})


def opened(path) -> Image.Image:
    with Image.open(path) as image:
        image.load()
    assert image.format == "PNG"
    assert [file.name for file in path.parent.iterdir()] == [path.name], "something was left beside it"
    return image


def texts(figure: Figure) -> list[Text]:
    """All that can be read; matplotlib has ticks outside of the panels that it does not draw."""
    figure.draw_without_rendering()
    undrawn = {label for axes in figure.axes for label in labels_outside(axes)}
    found = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    return [text for text in found if text not in undrawn]


def labels_outside(axes: Axes) -> list[Text]:
    if not axes.axison:
        return axes.get_xticklabels() + axes.get_yticklabels()
    found = []
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        found += [tick.label1 for tick in ticks if not low <= tick.get_loc() <= high]
    return found


def assert_readable(figure: Figure) -> None:
    """Everything is inside the figure, and nothing covers anything else."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")
        boxes = [(text.get_text(), text.get_window_extent()) for text in texts(figure)]
    for text, box in boxes:
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= figure.bbox.x1, text
        assert box.y1 <= figure.bbox.y1, text
    for (text, box), (other, another) in combinations(boxes, 2):
        overlap = min(box.x1, another.x1) - max(box.x0, another.x0), min(box.y1, another.y1) - max(box.y0, another.y0)
        assert min(overlap) < 1, (text, other)  # of a pixel


@pytest.mark.parametrize("epochs", [1, 30, 300])
def test_curves_are_drawn(epochs, tmp_path):
    draw_curves(history(epochs), PANELS, tmp_path / "curves.png")
    assert opened(tmp_path / "curves.png").size == (1890, 495)


@pytest.mark.parametrize(("epochs", "every"), [(1, 1), (2, 1), (30, 1), (30, 7), (300, 1), (300, 10)])
def test_curves_can_be_read(epochs, every):
    assert_readable(curves(history(epochs, every), PANELS))


def test_curves_hold_every_epoch_that_has_a_value():
    rows = history(30, every=7)
    loss, accuracy, rate = curves(rows, PANELS).axes
    training, validation = loss.lines
    assert training.get_xdata().tolist() == list(range(1, 31))
    assert training.get_ydata().tolist() == [row["train_loss"] for row in rows]
    assert validation.get_xdata().tolist() == [7, 14, 21, 28]
    assert accuracy.lines[0].get_ydata().tolist() == [
        100 * rows[epoch - 1]["val_accuracy"] for epoch in (7, 14, 21, 28)
    ]
    assert rate.lines[0].get_ydata().tolist() == [row["lr"] for row in rows]


def test_ends_of_curves_say_their_last_values():
    loss, accuracy, rate = curves(history(30, every=7), PANELS).axes
    assert [text.get_text() for text in loss.texts] == ["training 1.03", "validation 1.05"]
    assert [text.get_text() for text in accuracy.texts] == ["top-1 88.2 %", "top-5 97.2 %"]
    assert [text.get_text() for text in rate.texts] == ["0.0001"]


def test_curves_without_some_quantities():
    assert len(curves(history(3, top5=False), PANELS).axes[1].lines) == 1
    unvalidated = curves(history(3, every=4), PANELS)
    assert [axes.get_title() for axes in unvalidated.axes] == ["loss", "learning rate"]
    assert len(unvalidated.axes[0].lines) == 1


def test_epochs_are_whole_numbers():
    assert [tick for tick in curves(history(1), PANELS).axes[0].get_xticks() if 0.5 <= tick <= 1.5] == [1]


def test_curves_before_the_first_epoch(tmp_path):
    draw_curves([], PANELS, tmp_path / "curves.png")
    opened(tmp_path / "curves.png")
    assert [text.get_text() for text in texts(curves([], PANELS))] == ["No epoch has finished."]


def test_a_loss_that_explodes_hides_no_other():
    rows = history(9)
    rows[4]["train_loss"] = 1e6
    rows[8]["train_loss"] = math.nan
    loss, accuracy, rate = (axes.get_yscale() for axes in curves(rows, PANELS).axes)
    assert (loss, accuracy, rate) == ("log", "linear", "linear")
    assert_readable(curves(rows, PANELS))
    assert curves(rows, PANELS).axes[0].texts[0].get_text() == f"training {1 + 1 / 8:.3g}"


def test_a_wide_range_of_rates_or_accuracies_stays_linear():
    rows = [{"epoch": 1, "lr": 1.0, "val_accuracy": 0.001}, {"epoch": 2, "lr": 1e-6, "val_accuracy": 0.9}]
    assert [axes.get_yscale() for axes in curves(rows, PANELS).axes] == ["linear", "linear"]


def test_spread_moves_only_what_is_too_close():
    assert spread([0.5, 0.1, 0.52], 0.1) == pytest.approx([0.5, 0.1, 0.6])
    assert spread([0.3, 0.3, 0.3], 0.1) == pytest.approx([0.3, 0.4, 0.5])


@pytest.mark.parametrize("k", [1, 2, 10, 20, 21, 100])
@pytest.mark.parametrize("name", ["{}", LONG])
def test_confusion_can_be_read(k, name):
    assert_readable(confusion(confused(k), [name.format(n) for n in range(k)]))


@pytest.mark.parametrize("k", [2, 5, 1000])
def test_confusion_is_drawn(k, tmp_path):
    draw_confusion(confused(k), [LONG.format(n) for n in range(k)], tmp_path / "confusion.png")
    across, down = opened(tmp_path / "confusion.png").size
    assert 450 < down < across < 2500


def test_rows_of_the_matrix_are_shares_of_the_true_class():
    matrix = torch.tensor([[3, 1, 0], [0, 0, 0], [2, 5, 3]])
    axes = confusion(matrix, ["a", "b", "c"]).axes[0]
    shown = torch.tensor(axes.images[0].get_array().filled(math.nan))
    torch.testing.assert_close(
        shown, torch.tensor([[0.75, 0.25, 0], [math.nan] * 3, [0.2, 0.5, 0.3]]).double(), equal_nan=True
    )
    assert {text.get_position(): text.get_text() for text in axes.texts} == {
        (0, 0): "75",
        (1, 0): "25",
        (0, 2): "20",
        (1, 2): "50",
        (2, 2): "30",
    }
    assert axes.get_title() == "6 of 14 images right (43 %)"


def test_numbers_only_where_they_fit():
    few, many = (confusion(confused(k), [str(n) for n in range(k)]) for k in (20, 21))
    assert len(few.axes[0].texts) == 60
    assert len(many.axes[0].texts) == 0
    assert len(many.axes) == len(few.axes) + 1, "colours need a scale where there are no numbers"


def test_names_are_thinned_out_evenly():
    axes = confusion(confused(1000), [str(n) for n in range(1000)]).axes[0]
    expected = [str(n) for n in range(0, 1000, 20)]
    for axis in (axes.xaxis, axes.yaxis):
        assert [label.get_text() for label in axis.get_ticklabels()] == expected
        assert axis.get_ticklocs().tolist() == list(range(0, 1000, 20))


def test_worst_pairs_by_share_then_by_number():
    matrix = torch.tensor([[90, 10, 0], [1, 1, 0], [0, 50, 50]])
    assert worst_pairs(matrix) == [(2, 1, 50, 100), (1, 0, 1, 2), (0, 1, 10, 100)]
    assert len(worst_pairs(confused(100))) == 15


def test_confusion_lists_the_worst_pairs_and_the_missing_classes():
    matrix = torch.tensor([[89, 11, 0], [0, 100, 0], [0, 0, 0]])
    note = confusion(matrix, ["shirt", "T-shirt", "coat"]).axes[-1].texts[0].get_text()
    assert note == "most confused:\nshirt predicted as T-shirt: 11 % (11 of 100)\ngrey: 1 class without images"


def test_confusion_without_mistakes_or_images():
    right, nothing = (confusion(n * torch.eye(3, dtype=torch.int64), ["a", "b", "c"]) for n in (5, 0))
    assert right.axes[-1].texts[0].get_text() == "No image was misclassified."
    assert nothing.axes[0].get_title() == "no images"
    assert_readable(right)
    assert_readable(nothing)


@pytest.mark.unchecked
def test_confusion_needs_all_names():
    with pytest.raises(ValueError, match="got 2 names for 3 rows"):
        confusion(confused(3), ["a", "b"])


def test_odd_names_are_drawn_without_a_word(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw_confusion(confused(len(ODD)), ODD, tmp_path / "odd.png")
        opened(tmp_path / "odd.png")
        draw_mistakes([mistake(name=name, label=name, guess=name) for name in ODD], tmp_path / "odd.png")
        opened(tmp_path / "odd.png")


@pytest.mark.filterwarnings("ignore:Glyph")
def test_odd_names_can_be_read():
    assert_readable(confusion(confused(len(ODD)), ODD))
    assert_readable(mistakes([mistake(name=name, label=name, guess=name) for name in ODD]))


@pytest.mark.parametrize("count", [1, 5, 24])
@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 224, 160), (3, 20, 300)], ids=str)
def test_mistakes_can_be_read(count, shape):
    name = LONG.format(0)
    assert_readable(mistakes([mistake(n, shape, name="folder/" + name, label=name, guess=name) for n in range(count)]))


@pytest.mark.parametrize(("count", "size"), [(1, (315, 435)), (5, (1575, 435)), (7, (1890, 810)), (24, (1890, 1560))])
def test_mistakes_are_drawn(count, size, tmp_path):
    draw_mistakes([mistake(n) for n in range(count)], tmp_path / "mistakes.png")
    assert opened(tmp_path / "mistakes.png").size == size


def test_mistakes_show_the_largest_loss_first_and_no_more_than_fit():
    probabilities = (torch.randperm(30) / 100).tolist()
    shown = mistakes([mistake(n, label_probability=each) for n, each in enumerate(probabilities)]).axes
    order = sorted(range(30), key=lambda n: probabilities[n])
    assert [axes.get_xlabel() for axes in shown] == [f"test/{n}" for n in order[:24]]


def test_a_mistake_shows_its_image_and_says_what_it_was_taken_for():
    grey, colour = mistake(0, (1, 5, 7), label_probability=0.01), mistake(1, (3, 5, 7))
    first, second = mistakes([grey, colour]).axes
    assert first.images[0].get_array().squeeze().tolist() == grey.image[0].tolist()
    assert first.images[0].get_clim() == (0, 255)
    assert second.images[0].get_array().tolist() == colour.image.permute(1, 2, 0).tolist()
    assert second.get_title() == "T-shirt (87 %), is shirt (3 %)"
    assert second.get_xlabel() == "test/1"


def test_no_mistakes(tmp_path):
    draw_mistakes([], tmp_path / "mistakes.png")
    opened(tmp_path / "mistakes.png")
    assert texts(mistakes([]))[0].get_text().startswith("No mistakes")


def test_a_failure_leaves_the_old_picture(tmp_path, monkeypatch):
    path = tmp_path / "curves.png"
    path.write_bytes(b"old")
    monkeypatch.setattr(Figure, "savefig", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        draw_curves(history(2), PANELS, path)
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0 %"), (0.004, "<1 %"), (0.005, "<1 %"), (0.11, "11 %"), (0.994, "99 %"), (0.999, ">99 %"), (1.0, "100 %")],
)
def test_percent(share, text):
    assert percent(share) == text


def test_shorten_keeps_both_ends():
    name = LONG.format(17)
    short = shorten(name, 100.0, 8.0)
    head, tail = short.split("…")
    assert name.startswith(head)
    assert name.endswith(tail)
    assert 70 < width(short, 8.0) <= 100
    assert shorten("shirt", 100.0, 8.0) == "shirt"
    assert all(width(shorten(name, room, 8.0), 8.0) <= room for room in (20.0, 50.0, 150.0))
    lengths = [len(shorten(name, room, 8.0)) for room in (20.0, 50.0, 100.0, 150.0)]
    assert all(less < more for less, more in pairwise(lengths))


def test_printable_is_one_line_that_matplotlib_can_draw():
    assert printable("two\nlines\tand a tab ") == "two lines and a tab"
    assert printable("\udcff") == "?"
    assert printable("Größe 猫") == "Größe 猫"
