"""Batches: each item once, in an order that only the seed, the epoch and the position decide."""

import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import pytest
import torch

from lambdanets.data import BadItemError, Batch, DataError, Item, Position, Share, Split, Stream
from lambdanets.data.images import ImageDataConfig, for_training
from lambdanets.data.indexed import SplitLoader
from lambdanets.data.loader import LoaderOptions
from lambdanets.data.streamed import StreamEvaluationLoader, StreamLoader, StreamSampleLoader
from tiny import image_data


def image(number: int) -> torch.Tensor:
    return torch.full((1, 5, 7), number, dtype=torch.uint8)


class Numbers(Split):
    """Image i is i everywhere; some cannot be read."""

    def __init__(self, size: int, bad: tuple[int, ...] = ()) -> None:
        self.size, self.bad = size, bad

    def __len__(self) -> int:
        return self.size

    def read(self, number: int) -> torch.Tensor:
        if number in self.bad:
            raise BadItemError(str(number), "is bad")
        return image(number)

    def item(self, index: int) -> Item:
        return Item(str(index), lambda: self.read(index))


class NumberStream(Stream):
    def __init__(self, size: int, length: int | None) -> None:
        self.size, self.length = size, length

    def items(self, *, seed: int, epoch: int, part: int, parts: int) -> Iterator[Item]:
        generator = torch.Generator().manual_seed(seed * 1000 + epoch)
        order = torch.randperm(self.size, generator=generator).tolist()
        for number in order[part::parts]:
            yield Item(str(number), lambda number=number: image(number))


def whole(x: torch.Tensor) -> torch.Tensor:
    return x[..., :5, :5]


def stacked(images: Sequence[torch.Tensor]) -> Batch:
    found = torch.stack(list(images)) if images else torch.empty(0, 1, 5, 5, dtype=torch.uint8)
    return Batch(inputs=found, counts=[1] * len(images))


def plan(batch_size: int = 8, **more) -> LoaderOptions:
    return LoaderOptions(to_example=whole, collate=stacked, batch_size=batch_size, items="images", **more)


def flat(lists: Iterable[list[str]]) -> list[str]:
    return [name for one in lists for name in one]


def names(batches) -> list[list[str]]:
    return [batch.names for batch in batches]


def test_a_shuffled_epoch_has_whole_batches_of_different_images_and_the_next_another_order():
    loader = SplitLoader(Numbers(37), plan(seed=3), shuffle=True)
    first = names(loader)
    assert len(first) == len(loader) == 4
    assert {len(batch) for batch in first} == {8}
    assert max(Counter(flat(first)).values()) == 1
    later = names(SplitLoader(Numbers(37), plan(seed=3, position=lambda: Position(1, 0)), shuffle=True))
    assert first != later
    assert first == names(SplitLoader(Numbers(37), plan(seed=3), shuffle=True))
    assert first != names(SplitLoader(Numbers(37), plan(seed=4), shuffle=True))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_goes_on_from_any_place(workers):
    config = ImageDataConfig(source="digits", limit=64, batch_size=16, crop="padded", randaugment=9, workers=workers)
    data = image_data(config, 8)
    whole_epoch = list(data.training_loader(seed=5, position=lambda: Position(2, 0)))
    rest = list(data.training_loader(seed=5, position=lambda: Position(2, 3)))
    assert len(whole_epoch) == 4
    assert len(rest) == 1
    assert rest[0].names == whole_epoch[3].names
    assert torch.equal(rest[0].inputs.images, whole_epoch[3].inputs.images)


def pairs(batch) -> list[tuple[str, torch.Tensor]]:
    return list(zip(batch.names, batch.inputs.images, strict=True))


def test_changes_of_images_come_from_their_own_seeds_and_differ_between_epochs():
    data = image_data(ImageDataConfig(source="digits", limit=64, batch_size=64, crop="padded", workers=0), 8)
    before = torch.get_rng_state()
    one, same, other = (
        dict(pair for batch in data.training_loader(position=lambda e=e: Position(e, 0)) for pair in pairs(batch))
        for e in (0, 0, 1)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert sum(not torch.equal(one[name], other[name]) for name in one) > 32


@pytest.mark.parametrize("world", [2, 3])
def test_processes_share_every_batch_whatever_their_number(world):
    alone = names(SplitLoader(Numbers(50), plan(12), shuffle=True))
    together = [
        names(SplitLoader(Numbers(50), plan(12, share=Share(rank, world)), shuffle=True)) for rank in range(world)
    ]
    assert [flat(parts) for parts in zip(*together, strict=True)] == alone


@pytest.mark.parametrize(("size", "world"), [(37, 2), (25, 3), (24, 2), (1, 3)])
def test_evaluation_counts_every_image_once_in_as_many_batches_for_every_process(size, world):
    loaders = [SplitLoader(Numbers(size), plan(12, share=Share(rank, world)), shuffle=False) for rank in range(world)]
    batches = [list(loader) for loader in loaders]
    assert len({len(of_rank) for of_rank in batches}) == 1
    for together in zip(*batches, strict=True):
        assert len({len(batch.valid) for batch in together}) == 1
    counted = [
        name
        for of_rank in batches
        for batch in of_rank
        for name, is_valid in zip(batch.names, batch.valid.tolist(), strict=True)
        if is_valid
    ]
    assert sorted(counted, key=int) == [str(i) for i in range(size)]


def test_bad_images_are_left_out_and_named():
    batches = list(SplitLoader(Numbers(16, bad=(3, 9)), plan(8), shuffle=False))
    assert [len(batch.inputs) for batch in batches] == [7, 7]
    assert [batch.skipped for batch in batches] == [[("3", "is bad")], [("9", "is bad")]]
    (nothing,) = SplitLoader(Numbers(2, bad=(0, 1)), plan(2), shuffle=False)
    assert nothing.inputs.shape == (0, 1, 5, 5)
    assert len(nothing.skipped) == 2


def test_too_large_batches_and_unequal_shares_are_told():
    with pytest.raises(DataError, match=r"5 images are not enough for a batch of data.batch_size=8"):
        SplitLoader(Numbers(5), plan(), shuffle=True)
    with pytest.raises(DataError, match=r"data.batch_size=9 is not a multiple of the 2 processes"):
        list(SplitLoader(Numbers(50), plan(9, share=Share(0, 2)), shuffle=True))


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_stream_goes_on_from_any_place(workers):
    def batches(position: Position) -> list[list[str]]:
        return names(
            StreamLoader(NumberStream(61, length=61), plan(6, workers=workers, seed=1, position=lambda: position))
        )

    epoch = batches(Position(4, 0))
    assert len(epoch) == 61 // 6
    assert max(Counter(flat(epoch)).values()) <= 2  # a worker may begin its part again
    for had in (1, 2, 5, 9):
        assert batches(Position(4, had)) == epoch[had:]
    assert batches(Position(5, 0)) != epoch


def test_a_stream_shorter_than_its_epoch_is_read_again():
    loader = StreamLoader(NumberStream(10, length=40), plan(8))
    counts = Counter(flat(names(loader)))
    assert set(counts.values()) == {4}


@pytest.mark.parametrize("workers", [0, 2])
def test_evaluation_of_a_stream_has_every_image_once(workers):
    loaders = [
        StreamEvaluationLoader(NumberStream(23, None), plan(4, workers=workers, share=Share(r, 2))) for r in (0, 1)
    ]
    counted = [name for loader in loaders for batch in loader for name in batch.names]
    assert sorted(counted, key=int) == [str(i) for i in range(23)]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_sample_of_a_stream_is_the_same_whatever_the_workers_are(workers):
    loader = StreamSampleLoader(NumberStream(61, length=61), plan(8, workers=workers), items=20)
    first_pass = names(loader)
    assert [len(batch) for batch in first_pass] == [8, 8, 8]
    assert first_pass == names(loader) == names(StreamSampleLoader(NumberStream(61, length=61), plan(8), items=20))
    assert len(set(flat(first_pass))) == 24


def test_a_sample_of_a_short_stream_has_every_image_once():
    for length in (10, 400, None):  # what the stream says of itself need not be so
        sample = flat(names(StreamSampleLoader(NumberStream(10, length), plan(8), items=64)))
        assert sorted(sample, key=int) == [str(i) for i in range(10)]


def test_a_stream_has_to_know_its_length_to_train():
    with pytest.raises(DataError, match=r"data\.samples=NUMBER"):
        StreamLoader(NumberStream(10, length=None), plan())


def test_waiting_is_measured():
    loader = SplitLoader(Numbers(16), plan(8), shuffle=True)
    list(loader)
    assert 0 < loader.waited < 10


def test_transforms_can_go_to_workers_that_are_started_anew():
    transform = for_training(ImageDataConfig(crop="resized", flip=0.5, randaugment=5), 8)
    torch.manual_seed(0)
    one = transform(torch.randint(256, (3, 9, 9), dtype=torch.uint8))
    torch.manual_seed(0)
    again = pickle.loads(pickle.dumps(transform))(torch.randint(256, (3, 9, 9), dtype=torch.uint8))
    assert torch.equal(one, again)
    assert one.shape == (3, 8, 8)
