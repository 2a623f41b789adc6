"""What can happen to checkpoints and images, and whether two are equal: shared by the tests and tools/endure.py."""

import csv
import functools
import importlib
import io
import operator
import os
import pickle
import random
import runpy
import shutil
import subprocess
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from lambdanets.train import checkpoints

# What the clock decides, in rows of metrics and in sums of an epoch.
TIMES = {"seconds", "images_per_second", "waiting_share", "training", "waiting"}
# All that decides how a run goes on and what it says about itself.
DECIDES = ("epoch", "global_step", "state_dict", "optimizer_states", "lr_schedulers", "callbacks")


def state_of_run(folder: Path) -> dict[str, Any]:
    """What must be the same in a run that was interrupted and in one that was not."""
    state = checkpoints.newest_intact(folder / "checkpoints")[1]
    with (folder / "metrics.csv").open(newline="") as file:
        rows = [dict(row) for row in csv.DictReader(file)]
    return {**{name: state[name] for name in DECIDES}, "metrics.csv": rows}


def differences(one: Any, other: Any, where: str = "") -> Iterator[str]:
    """The places where two states are not the same bit by bit, times left out."""
    if type(one) is not type(other):
        yield f"{where}: {type(one).__name__} and {type(other).__name__}"
    elif isinstance(one, Tensor):
        if one.dtype != other.dtype or not torch.equal(one, other):
            yield where
    elif isinstance(one, dict):
        if list(one) != list(other):
            yield f"{where}: keys"
        for key in one.keys() & other.keys() - TIMES:
            yield from differences(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list | tuple):
        if len(one) != len(other):
            yield f"{where}: {len(one)} and {len(other)} entries"
        for index, (its, others) in enumerate(zip(one, other, strict=False)):
            yield from differences(its, others, f"{where}.{index}")
    elif one != other:
        yield f"{where}: {one} and {other}"


def example(seed: int, size: int = 10_000) -> dict[str, Any]:
    """A state like that of a run."""
    generator = torch.Generator().manual_seed(seed)
    weights = {f"model.{name}": torch.randn(size // 4, generator=generator) for name in "abcd"}
    return {"global_step": seed, "state_dict": weights, "callbacks": {"History": {"rows": [{"loss": 0.5}]}}}


def write_with_hash(path: Path, content: bytes) -> None:
    """As an intact checkpoint has it, whatever the content is."""
    path.write_bytes(content)
    checkpoints.hash_path(path).write_text(f"{sha256(content).hexdigest()}  {path.name}\n")


def flip_bit(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def flip_bits(path: Path, chance: random.Random) -> None:
    """An odd number, so that they cannot undo each other."""
    for _ in range(chance.randrange(3, 101, 2)):
        flip_bit(path, chance)


def truncate(path: Path, chance: random.Random) -> None:
    os.truncate(path, chance.randrange(1, path.stat().st_size))


def empty(path: Path, _: random.Random) -> None:
    path.write_bytes(b"")


def append(path: Path, chance: random.Random) -> None:
    with path.open("ab") as file:
        file.write(chance.randbytes(chance.randrange(1, 1000)))


def forget_block(path: Path, chance: random.Random) -> None:
    """As file systems do that had the length on the disk and not the content."""
    content = path.read_bytes()
    start = chance.randrange(len(content))
    end = min(len(content), start + chance.randrange(512, 4096))
    gone = content[:start] + bytes(end - start) + content[end:]
    path.write_bytes(gone if gone != content else gone + b"\0")


def random_content(path: Path, chance: random.Random) -> None:
    path.write_bytes(chance.randbytes(path.stat().st_size))


def random_content_with_hash(path: Path, chance: random.Random) -> None:
    write_with_hash(path, chance.randbytes(chance.randrange(0, path.stat().st_size)))


def truncated_with_hash(path: Path, chance: random.Random) -> None:
    write_with_hash(path, path.read_bytes()[: chance.randrange(path.stat().st_size)])


def pickle_with_hash(path: Path, chance: random.Random) -> None:
    """A file that torch reads and that is no state of a run."""
    buffer = io.BytesIO()
    torch.save(chance.choice([[], 5, "state", torch.zeros(3), None]), buffer)
    write_with_hash(path, buffer.getvalue())


def remove_file(path: Path, _: random.Random) -> None:
    path.unlink()


def folder_instead(path: Path, _: random.Random) -> None:
    path.unlink()
    path.mkdir()


def swap_hash(path: Path, chance: random.Random) -> None:
    """That of another checkpoint, which had the same name."""
    hashed = checkpoints.hash_path(path)
    other = sha256(chance.randbytes(99)).hexdigest()
    hashed.write_text(f"{other}  {path.name}\n")


def swap_names(path: Path, chance: random.Random) -> None:
    """A copy of another checkpoint, hash and all: of the right kind and the wrong step."""
    other = checkpoints.path_for(path.parent / "other", chance.randrange(10**8, 10**9))
    checkpoints.save(example(1), other)
    shutil.copy(other, path)
    shutil.copy(checkpoints.hash_path(other), checkpoints.hash_path(path))
    shutil.rmtree(other.parent)


def of_hash(mutation: Callable[[Path, random.Random], None]) -> Callable[[Path, random.Random], None]:
    return lambda path, chance: mutation(checkpoints.hash_path(path), chance)


MUTATIONS: dict[str, Callable[[Path, random.Random], None]] = {
    "one bit": flip_bit,
    "some bits": flip_bits,
    "truncated": truncate,
    "empty": empty,
    "appended bytes": append,
    "a block of zeros": forget_block,
    "random content": random_content,
    "random content with its hash": random_content_with_hash,
    "truncated, with its hash": truncated_with_hash,
    "no state, with its hash": pickle_with_hash,
    "missing": remove_file,
    "a folder": folder_instead,
    "another's hash": swap_hash,
    "another's name": swap_names,
    "one bit of the hash": of_hash(flip_bit),
    "hash truncated": of_hash(truncate),
    "hash empty": of_hash(empty),
    "hash random": of_hash(random_content),
    "hash missing": of_hash(remove_file),
    "hash a folder": of_hash(folder_instead),
}


class Calls:
    """Its pickle calls something when it is read."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.reduced = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.reduced


class Awakening(nn.Module):
    """A module that does something when it is read."""

    def __init__(self, marker: Path) -> None:
        super().__init__()
        self.marker = str(marker)

    def __setstate__(self, state: dict[str, Any]) -> None:
        Path(state["marker"]).touch()
        super().__setstate__(state)


class ByName:
    """Pickled as a function of another module than the one that defines it: os.system says that it is posix.system."""

    def __init__(self, module: str, name: str) -> None:
        self.parts = (module, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (Calls(importlib.import_module, self.parts[0]), self.parts[1])


def with_objects(entry: Any) -> np.ndarray:
    array = np.empty(1, dtype=object)
    array[0] = entry
    return array


def by_hand(marker: Path) -> bytes:
    """No pickler writes `os.system`, but any unpickler finds it."""
    return f"cos\nsystem\n(S'touch {marker}'\ntR.".encode()


# Each, read by pickle, makes the file `marker`.
PAYLOADS: dict[str, Callable[[Path], Any]] = {
    "posix.system": lambda marker: Calls(os.system, f"touch {marker}"),
    "os.system by name": lambda marker: Calls(operator.call, ByName("os", "system"), f"touch {marker}"),
    "eval": lambda marker: Calls(eval, f"__import__('pathlib').Path({str(marker)!r}).touch()"),
    "exec": lambda marker: Calls(exec, f"open({str(marker)!r}, 'w').close()"),
    "subprocess.Popen": lambda marker: Calls(subprocess.Popen, ["touch", str(marker)]),
    "subprocess.run": lambda marker: Calls(subprocess.run, ["touch", str(marker)]),
    "partial": lambda marker: Calls(functools.partial(os.system, f"touch {marker}")),
    "methodcaller": lambda marker: Calls(operator.methodcaller("touch"), marker),
    "bound method": lambda marker: Calls(marker.touch),
    "open": lambda marker: Calls(open, str(marker), "w"),
    "os.open": lambda marker: Calls(os.open, str(marker), os.O_CREAT),
    "runpy": lambda marker: Calls(runpy.run_path, str(script_for(marker))),
    "copied file": lambda marker: Calls(shutil.copy, str(script_for(marker)), str(marker)),
    "numpy array of objects": lambda marker: with_objects(Calls(os.system, f"touch {marker}")),
    "numpy from a file": lambda marker: Calls(np.save, Calls(open, str(marker), "wb"), 0),
    "module object": lambda marker: Awakening(marker),
    "torch.save": lambda marker: Calls(torch.save, 0, str(marker)),
}


def script_for(marker: Path) -> Path:
    """A program that makes the marker."""
    path = marker.with_suffix(".py")
    path.write_text(f"open({str(marker)!r}, 'w').close()\n")
    return path


def as_zip(content: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def as_old_format(content: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer, _use_new_zipfile_serialization=False)
    return buffer.getvalue()


def hidden(content: Any) -> bytes:
    """Among what a checkpoint has."""
    state = example(3, 100)
    state["callbacks"]["Other"] = [content]
    return as_zip(state)


WRAPPINGS: dict[str, Callable[[Any], bytes]] = {
    "pickle": pickle.dumps,
    "protocol 0": lambda content: pickle.dumps(content, protocol=0),
    "torch": as_zip,
    "hidden in a state": hidden,
    "torch, old format": as_old_format,
}


def payloads(marker: Path) -> Iterator[tuple[str, bytes]]:
    """Files that would make `marker` if they were read as pickles are."""
    yield "os.system by hand", by_hand(marker)
    for wrapping, wrap in WRAPPINGS.items():
        for kind, make in PAYLOADS.items():
            yield f"{kind}, {wrapping}", wrap(make(marker))


def write_images(folder: Path, count: int, bad: int) -> set[str]:
    """Two classes, dark and light; the paths of those that are cut short."""
    rng = np.random.default_rng(0)
    paths = []
    for i in range(count):
        path = folder / ("dark", "light")[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(100, size=(9, 9), dtype=np.uint8) + 150 * (i % 2)).save(path)
        paths.append(path)
    for path in paths[:bad]:
        path.write_bytes(path.read_bytes()[:-40])
    return {str(path) for path in paths[:bad]}
