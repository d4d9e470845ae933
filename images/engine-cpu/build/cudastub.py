"""Let the CUDA build of torch load on a machine without CUDA.

PyPI has only torch's CUDA build for x86-64 Linux. Its libraries name fifteen CUDA libraries and
ask for versioned symbols from them, so empty files do not do. This tool reads every CUDA-side
symbol that torch's own libraries import, writes one shared object that defines them all as
"return 100" (no device), and links it under each name. torch then loads, sees no device and runs
on CPU. Build-time tool of the engine-cpu image: `cudastub.py TORCH_LIB_DIR`.
"""

from __future__ import annotations

import mmap
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from elf import Library, stub_library

STUB = "libcudastub.so"
# Library names and symbol-version names of CUDA; libcurl is not one.
LIBRARY = re.compile(r"lib(cu(?!rl)\w*|nccl|nvrtc|nvshmem\w*|nvJitLink)\.so|NVSHMEM")
SYMBOL = re.compile(r"_{0,2}(cu|nccl|nvrtc|nvshmem|nvJit)")


def wanted(libraries: Iterable[Path]) -> tuple[set[str], dict[str, str]]:
    """The CUDA library names asked for, and the symbols (name → version) to define for them."""
    names: set[str] = set()
    symbols: dict[str, str] = {}
    unversioned: set[str] = set()
    defined: set[str] = set()
    for path in libraries:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            library = Library(data)  # type: ignore[arg-type]  # a mapping reads like bytes
            names.update(name for name in library.needed() if LIBRARY.match(name))
            for symbol in library.symbols():
                if symbol.defined:
                    defined.add(symbol.name)
                elif LIBRARY.match(symbol.version):
                    symbols[symbol.name] = symbol.version
                elif not symbol.version and SYMBOL.match(symbol.name):
                    unversioned.add(symbol.name)
            data.close()
    symbols |= {name: "" for name in unversioned - defined - symbols.keys()}
    return names, symbols


def install(folder: Path) -> tuple[int, int]:
    """Writes the stub and its links into torch's library folder; returns (symbols, names)."""
    libraries = sorted(p for p in folder.glob("*.so") if not p.is_symlink() and p.name != STUB)
    names, symbols = wanted(libraries)
    if not names:
        raise SystemExit(f"cudastub: no library in {folder} asks for CUDA: wrong folder?")
    (folder / STUB).write_bytes(stub_library(STUB, symbols))
    for name in sorted(names):
        link = folder / name
        if not link.exists():
            link.symlink_to(STUB)
    return len(symbols), len(names)


if __name__ == "__main__":
    count, links = install(Path(sys.argv[1]))
    print(f"cudastub: {count} symbols under {links} names")
