"""Just enough of 64-bit little-endian ELF to read a library's imports and to write a stub library.

Used by cudastub.py while the engine-cpu image is built. Written out here so that the build needs
neither a compiler nor binutils. Layouts and constants: System V gABI, and the GNU symbol-version
sections of the Linux Standard Base.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

SHT_DYNAMIC, SHT_DYNSYM, SHT_VERNEED, SHT_VERSYM = 6, 11, 0x6FFFFFFE, 0x6FFFFFFF
DT_NULL, DT_NEEDED = 0, 1
SHN_UNDEF = 0
PAGE = 0x1000
BASE_ADDRESS = 0
# mov $100, %eax; ret. 100 is cudaErrorNoDevice and CUDA_ERROR_NO_DEVICE.
NO_DEVICE = bytes.fromhex("b864000000c3")


@dataclass(frozen=True)
class Symbol:
    """One entry of a dynamic symbol table; `version` is empty for an unversioned symbol."""

    name: str
    version: str
    defined: bool


@dataclass(frozen=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int
    count: int


class Library:
    """The dynamic section and dynamic symbols of a shared object held in a bytes-like buffer."""

    def __init__(self, data: bytes) -> None:
        """Reads the section headers; raises ValueError for anything but ELF64 little-endian."""
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("not a 64-bit little-endian ELF file")
        self._data = data
        (start,) = struct.unpack_from("<Q", data, 0x28)
        size, number = struct.unpack_from("<HH", data, 0x3A)
        self._sections = [self._section(start + i * size) for i in range(number)]

    def _section(self, at: int) -> _Section:
        _, kind, _, _, offset, size, link, count = struct.unpack_from("<IIQQQQII", self._data, at)
        return _Section(kind, offset, size, link, count)

    def _find(self, kind: int) -> _Section | None:
        return next((s for s in self._sections if s.kind == kind), None)

    def _text(self, table: int, offset: int) -> str:
        start = self._sections[table].offset + offset
        return bytes(self._data[start : self._data.find(b"\0", start)]).decode()

    def needed(self) -> list[str]:
        """The names of the libraries that this one asks the loader for."""
        dynamic = self._find(SHT_DYNAMIC)
        if dynamic is None:
            return []
        names = []
        for at in range(dynamic.offset, dynamic.offset + dynamic.size, 16):
            tag, value = struct.unpack_from("<qQ", self._data, at)
            if tag == DT_NULL:
                break
            if tag == DT_NEEDED:
                names.append(self._text(dynamic.link, value))
        return names

    def _needed_versions(self) -> dict[int, str]:
        """Version index → version name, from the version-needs section."""
        section = self._find(SHT_VERNEED)
        names: dict[int, str] = {}
        if section is None:
            return names
        at = section.offset
        while True:
            _, count, _, aux, following = struct.unpack_from("<HHIII", self._data, at)
            entry = at + aux
            for _ in range(count):
                _, _, index, name, step = struct.unpack_from("<IHHII", self._data, entry)
                names[index & 0x7FFF] = self._text(section.link, name)
                entry += step
            if following == 0:
                return names
            at += following

    def symbols(self) -> Iterator[Symbol]:
        """Every named dynamic symbol, imported ones with the version they ask for."""
        table, versions = self._find(SHT_DYNSYM), self._find(SHT_VERSYM)
        if table is None:
            return
        names = self._needed_versions()
        for i in range(table.size // 24):
            name, _, _, index = struct.unpack_from("<IBBH", self._data, table.offset + i * 24)
            if name == 0:
                continue
            version = 0
            if versions is not None:
                (version,) = struct.unpack_from("<H", self._data, versions.offset + i * 2)
            defined = index != SHN_UNDEF
            asked = "" if defined else names.get(version & 0x7FFF, "")
            yield Symbol(self._text(table.link, name), asked, defined)


def sysv_hash(name: str) -> int:
    """The hash of the gABI's symbol hash table."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return value


@dataclass
class _Strings:
    data: bytearray = field(default_factory=lambda: bytearray(b"\0"))

    def add(self, text: str) -> int:
        at = len(self.data)
        self.data += text.encode() + b"\0"
        return at


def _hash_table(names: Sequence[str]) -> bytes:
    """A gABI hash table for dynamic symbols 1..n, which carry these names."""
    buckets, chains = [0] * (len(names) | 1), [0] * (len(names) + 1)
    for index, name in enumerate(names, start=1):
        slot = sysv_hash(name) % len(buckets)
        chains[index], buckets[slot] = buckets[slot], index
    words = [len(buckets), len(chains), *buckets, *chains]
    return struct.pack(f"<{len(words)}I", *words)


def _version_definitions(soname: int, versions: Mapping[str, int], texts: Sequence[str]) -> bytes:
    """The version-definition section: index 1 is the library itself, then one entry a version."""
    entries = [(1, 1, sysv_hash(texts[0]), soname)]  # VER_FLG_BASE
    entries += [
        (0, index, sysv_hash(text), offset)
        for index, (text, offset) in enumerate(versions.items(), start=2)
    ]
    out = bytearray()
    for position, (flags, index, hashed, name) in enumerate(entries):
        step = 0 if position == len(entries) - 1 else 28
        out += struct.pack("<HHHHIII", 1, flags, index, 1, hashed, 20, step)
        out += struct.pack("<II", name, 0)
    return bytes(out)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 16)


def _program_headers(read_only: int, dynamic: int) -> bytes:
    """One read-execute segment from the file's start, one writable segment with the dynamic table."""
    at = read_only
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, BASE_ADDRESS, BASE_ADDRESS, at, at, PAGE)
    data = struct.pack("<IIQQQQQQ", 1, 6, at, at, at, dynamic, dynamic, PAGE)
    table = struct.pack("<IIQQQQQQ", 2, 6, at, at, at, dynamic, dynamic, 8)
    stack = struct.pack("<IIQQQQQQ", 0x6474E551, 6, 0, 0, 0, 0, 0, 16)
    return load + data + table + stack


def stub_library(soname: str, symbols: Mapping[str, str]) -> bytes:
    """An x86-64 shared object that defines each symbol (name → version or "") as "return 100"."""
    strings = _Strings()
    own_name = strings.add(soname)
    version_names = sorted({v for v in symbols.values() if v})
    versions = {v: strings.add(v) for v in version_names}
    index_of = {v: i for i, v in enumerate(version_names, start=2)}
    names = sorted(symbols)
    offsets = [strings.add(n) for n in names]

    parts: dict[str, bytes] = {
        "hash": _hash_table(names),
        "dynsym": b"\0" * 24 * (len(names) + 1),
        "versym": struct.pack(
            f"<{len(names) + 1}H", 0, *(index_of.get(symbols[n], 1) for n in names)
        ),
        "verdef": _version_definitions(own_name, versions, [soname]),
        "dynstr": bytes(strings.data),
        "text": NO_DEVICE,
    }
    place, at = {}, 64 + 4 * 56
    for key, data in parts.items():
        place[key] = at
        at += len(_padded(data))
    end = at + (-at % PAGE)
    # STB_GLOBAL, STT_FUNC; any defined section index will do, since there are no sections.
    entry = [struct.pack("<IBBHQQ", o, 0x12, 0, 1, place["text"], len(NO_DEVICE)) for o in offsets]
    parts["dynsym"] = b"\0" * 24 + b"".join(entry)

    tags = [(14, own_name), (4, place["hash"]), (5, place["dynstr"]), (6, place["dynsym"])]
    tags += [(10, len(strings.data)), (11, 24), (0x6FFFFFF0, place["versym"])]
    tags += [(0x6FFFFFFC, place["verdef"]), (0x6FFFFFFD, len(versions) + 1), (0, 0)]
    dynamic = b"".join(struct.pack("<QQ", *tag) for tag in tags)
    header = b"\x7fELF\x02\x01\x01" + b"\0" * 9
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 4, 64, 0, 0)
    body = b"".join(_padded(data) for data in parts.values())
    image = header + _program_headers(end, len(dynamic)) + body
    return image + b"\0" * (end - len(image)) + dynamic
