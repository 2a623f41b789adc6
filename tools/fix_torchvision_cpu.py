#!/usr/bin/env python3
"""Make torchvision, whose wheel for Linux on x86-64 is built for CUDA, load beside a torch for CPUs.

Its two libraries hold every CPU kernel, but cannot be loaded without CUDA libraries of torch. Both are edited in
place, no byte moves:

* an entry that needs an absent library of torch names libc10.so instead, which is needed anyway;
* undefined symbols of CUDA become weak, so that they may stay undefined; only CUDA kernels use them;
* the run path, a folder of the machine that built the wheel, becomes the folder of the libraries that the wheel
  brings along, where a link gives its CUDA runtime the usual name.

Run it with the Python that torchvision is installed for. It can run again, and does nothing where torch has CUDA.
"""

import importlib.util
import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

LIBRARIES = ("_C.so", "image.so")
RUN_PATH = b"$ORIGIN/../torchvision.libs"
ABSENT = {b"libc10_cuda.so", b"libtorch_cuda.so"}
PRESENT = b"libc10.so"
CUDA_SYMBOL = re.compile(rb"_ZNK?(3c10|2at)4cuda")

# Names and layouts of elf.h, for 64 bits and little endian.
HEADER = b"\x7fELF\x02\x01"
PT_LOAD, PT_DYNAMIC = 1, 2
DT_NEEDED, DT_STRTAB, DT_SYMTAB, DT_RPATH = 1, 5, 6, 15
SHT_DYNSYM = 11
STB_GLOBAL, STB_WEAK = 1, 2
SYMBOL_SIZE = 24


class Entry(NamedTuple):
    """One entry of the dynamic section, and where its value stands in the file."""

    place: int
    tag: int
    value: int


class Library:
    """A shared library as bytes that can be changed where they stand."""

    def __init__(self, content: bytes) -> None:
        if not content.startswith(HEADER):
            raise ValueError("not a 64-bit little-endian ELF file")
        self.content = bytearray(content)
        self.segments = self._table("<IIQQQQQQ", table_at=32, counts_at=54)
        start, size = next((offset, size) for kind, _, offset, _, _, size, *_ in self.segments if kind == PT_DYNAMIC)
        self.entries = [Entry(at + 8, *struct.unpack_from("<qQ", content, at)) for at in range(start, start + size, 16)]
        self.strings = self._offset(self._value(DT_STRTAB))

    def _table(self, layout: str, table_at: int, counts_at: int) -> list[tuple[int, ...]]:
        (start,) = struct.unpack_from("<Q", self.content, table_at)
        size, count = struct.unpack_from("<HH", self.content, counts_at)
        return [struct.unpack_from(layout, self.content, start + i * size) for i in range(count)]

    def _value(self, tag: int) -> int:
        return next(entry.value for entry in self.entries if entry.tag == tag)

    def _offset(self, address: int) -> int:
        """Where in the file an address of the loaded library stands."""
        loaded = ((at, offset, size) for kind, _, offset, at, _, size, *_ in self.segments if kind == PT_LOAD)
        return next(offset + address - at for at, offset, size in loaded if at <= address < at + size)

    def _string(self, index: int) -> bytes:
        start = self.strings + index
        return bytes(self.content[start : self.content.index(0, start)])

    def do_without_absent_libraries(self) -> None:
        needed = {self._string(entry.value): entry for entry in self.entries if entry.tag == DT_NEEDED}
        for name in ABSENT & needed.keys():
            struct.pack_into("<Q", self.content, needed[name].place, needed[PRESENT].value)

    def look_for_libraries_in(self, folder: bytes) -> None:
        for entry in self.entries:
            if entry.tag == DT_RPATH:
                old = self._string(entry.value)
                if len(old) < len(folder):
                    raise ValueError(f"no room for {folder!r} in place of its run path")
                start = self.strings + entry.value
                self.content[start : start + len(old)] = folder.ljust(len(old), b"\0")

    def let_cuda_symbols_be_undefined(self) -> None:
        sections = self._table("<IIQQQQIIQQ", table_at=40, counts_at=58)
        size = next(section[5] for section in sections if section[1] == SHT_DYNSYM)
        start = self._offset(self._value(DT_SYMTAB))
        for at in range(start, start + size, SYMBOL_SIZE):
            name, info, _, section = struct.unpack_from("<IBBH", self.content, at)
            undefined = section == 0 and info >> 4 == STB_GLOBAL
            if undefined and CUDA_SYMBOL.match(self._string(name)):
                self.content[at + 4] = STB_WEAK << 4 | info & 15


def fix(path: Path) -> None:
    before = path.read_bytes()
    library = Library(before)
    library.do_without_absent_libraries()
    library.look_for_libraries_in(RUN_PATH)
    library.let_cuda_symbols_be_undefined()
    if library.content != before:
        temporary = path.with_suffix(".tmp")
        temporary.write_bytes(library.content)
        os.replace(temporary, path)


def main() -> None:
    import torch

    spec = importlib.util.find_spec("torchvision")
    if torch.version.cuda is not None or spec is None or not spec.submodule_search_locations:
        return
    package = Path(spec.submodule_search_locations[0])
    brought = package.parent / "torchvision.libs"
    runtime = next(brought.glob("libcudart.*.so.*"), None)
    if runtime is None:  # this wheel is for CPUs
        return
    link = brought / f"libcudart.so.{runtime.name.rpartition('.')[2]}"
    if not link.exists():
        link.symlink_to(runtime.name)
    for name in LIBRARIES:
        fix(package / name)
    # In a new process: what is loaded in this one does not change.
    loads = "import torchvision; assert torchvision.extension._has_ops()"
    if subprocess.run([sys.executable, "-c", loads]).returncode:
        sys.exit("torchvision's operators still do not load beside this torch")


if __name__ == "__main__":
    main()
