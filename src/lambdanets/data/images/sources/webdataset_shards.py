"""Shards in WebDataset's format: tar files in which 0001.jpg and 0001.cls make an example.

They are read with the standard library. Unlike the package webdataset by default, it never unpickles their content.
"""

import json
import lzma
import random
import re
import tarfile
import zlib
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from lambdanets.data.images.config import ImageDataConfig
from lambdanets.data.images.decode import EXTENSIONS, decode, one_line
from lambdanets.data.images.labelled import ImageStream, Offer, bad_item, checked_item
from lambdanets.data.images.sources.classes import FILE, read_classes
from lambdanets.data.splits import DataError, Item

WANTED = EXTENSIONS | {"cls", "json"}
BUFFER = 1000  # items of the shuffle buffer, with their files in memory
LARGEST = 1 << 28  # bytes of an image file; a compressed shard can claim any number

DAMAGE = (tarfile.TarError, OSError, EOFError, ValueError, LookupError, OverflowError, zlib.error, lzma.LZMAError)


def offer(config: ImageDataConfig) -> Offer:
    """`data.root` is a folder with train*.tar and val*.tar (or test*.tar), or the training shards: `a/{000..099}.tar`.

    Validation shards and `classes.txt`, with a name for each class, are in the same folder.
    """
    if config.root is None:
        raise DataError("data.source=webdataset needs data.root, a folder with train*.tar, or set/train-{000..099}.tar")
    root = Path(config.root).expanduser()
    if root.is_dir():
        folder, train = root, sorted(root.glob("train*.tar"))
    else:
        train = [Path(path) for path in expand(str(root))]
        folder = train[0].parent if train else root.parent
    if not train or (absent := [path for path in train if not path.is_file()]):
        raise DataError(f"{absent[0] if train else folder / 'train*.tar'} does not exist (data.root={config.root})")
    classes = read_classes(folder)
    if classes is None:
        raise DataError(f"shards do not define the classes: write {folder / FILE}, one name in each line")
    return Offer(
        train=partial(ShardStream, train, classes, config.samples, shuffle=True),
        val=partial(load_validation, folder, classes),
    )


def load_validation(folder: Path, classes: tuple[str, ...]) -> "ShardStream":
    shards = sorted(folder.glob("val*.tar")) or sorted(folder.glob("test*.tar"))
    if not shards:
        raise DataError(f"there are no validation shards: neither {folder / 'val*.tar'} nor test*.tar")
    if others := [path for path in shards if not path.is_file()]:
        raise DataError(f"{others[0]} is not a regular file")
    return ShardStream(shards, classes, None, shuffle=False)


def expand(pattern: str) -> list[str]:
    """
    >>> expand("a{08..10}-{x,y}.tar")
    ['a08-x.tar', 'a08-y.tar', 'a09-x.tar', 'a09-y.tar', 'a10-x.tar', 'a10-y.tar']
    """
    match = re.search(r"\{(?:(\d+)\.\.(\d+)|([^{}]*,[^{}]*))\}", pattern)
    if match is None:
        return [pattern]
    first, last, names = match.groups()
    if names is None:
        names = ",".join(f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1))
    rests = expand(pattern[match.end() :])
    return [f"{pattern[: match.start()]}{name}{rest}" for name in names.split(",") for rest in rests]


class ShardStream(ImageStream):
    channels = 3

    def __init__(self, shards: list[Path], classes: tuple[str, ...], length: int | None, *, shuffle: bool) -> None:
        self.shards, self.classes, self.length, self.shuffle = shards, classes, length, shuffle

    def items(self, *, seed: int, epoch: int, part: int, parts: int) -> Iterator[Item]:
        """Whole shards go to each part if there are enough of them, otherwise every `parts`-th example."""
        shards = list(self.shards)
        if self.shuffle:
            random.Random(f"shards {seed} {epoch}").shuffle(shards)
        if len(shards) >= parts:
            found = self.items_in(shards[part::parts])
        else:
            found = islice(self.items_in(shards), part, None, parts)
        return shuffled(found, random.Random(f"examples {seed} {epoch} {part}")) if self.shuffle else found

    def items_in(self, shards: list[Path]) -> Iterator[Item]:
        for shard in shards:
            try:
                for key, files in samples(shard):
                    if EXTENSIONS & files.keys():  # others have no image
                        yield self.item(f"{shard}/{key}", files)
            except DAMAGE as error:
                yield bad_item(str(shard), f"the rest of this shard is damaged: {one_line(error)}")

    def item(self, name: str, files: dict[str, bytes]) -> Item:
        try:
            label = read_label(files)
        except (ValueError, RecursionError) as error:
            return bad_item(name, f"its label cannot be read: {one_line(error)}")
        extension = min(EXTENSIONS & files.keys())
        read = partial(decode, files[extension], f"{name}.{extension}", self.channels)
        return checked_item(name, label, len(self.classes), read)


def read_label(files: dict[str, bytes]) -> int:
    """
    >>> read_label({"cls": b"7"}), read_label({"json": b'{"label": 7}'})
    (7, 7)
    """
    if "cls" in files:
        return int(files["cls"])
    if "json" not in files:
        raise ValueError(f"neither cls nor json beside {', '.join(sorted(files))}")
    description = json.loads(files["json"])
    label = description.get("label") if isinstance(description, dict) else None
    if not isinstance(label, int):
        raise ValueError(f'"label" in its json is {label!r}')
    return label


def samples(shard: Path) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Consecutive members whose names differ only after the first dot."""
    key, files = "", dict[str, bytes]()
    with tarfile.open(shard, "r|*", tarinfo=Member) as archive:
        for member in archive:
            folder, slash, name = member.name.rpartition("/")
            stem, _, extension = name.partition(".")
            if folder + slash + stem != key:
                if files:
                    yield key, files
                key, files = folder + slash + stem, {}
            if member.isreg() and extension.lower() in WANTED:
                files[extension.lower()] = content(archive, member)
    if files:
        yield key, files


def content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    if member.issparse() or not 0 <= member.size <= LARGEST:
        raise ValueError(f"{member.name} claims to have {member.size} bytes")
    file = archive.extractfile(member)
    found = file.read() if file else b""
    if len(found) != member.size:
        raise EOFError(f"{member.name} has {len(found)} of {member.size} bytes")
    return found


class Member(tarfile.TarInfo):
    """Raises an error for a damaged header, which Python's TarInfo takes for the end of the archive."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "Member":
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if buf.count(0) == tarfile.BLOCKSIZE:
                raise
            raise tarfile.ReadError(f"{error}, after {len(buf)} bytes of it") from error


def shuffled(items: Iterator[Item], generator: random.Random) -> Iterator[Item]:
    """Shuffle a stream with a buffer."""
    buffer: list[Item] = []
    for item in items:
        if len(buffer) < BUFFER:
            buffer.append(item)
        else:
            place = generator.randrange(BUFFER)
            yield buffer[place]
            buffer[place] = item
    generator.shuffle(buffer)
    yield from buffer
