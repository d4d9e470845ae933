"""The stub library is loaded by the real loader, and read back by our own reader."""

import ctypes
import platform
import sys
from pathlib import Path

import pytest
from cudastub import LIBRARY, STUB, install, wanted
from elf import Library, stub_library, sysv_hash

SYMBOLS = {"cublasCreate_v2": "libcublas.so.13", "nvshmem_ptr": "NVSHMEM", "cuInit": ""}
X86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the stub is x86-64 code")


@X86_64
def test_the_loader_takes_it_and_every_symbol_says_no_device(tmp_path: Path) -> None:
    path = tmp_path / STUB
    path.write_bytes(stub_library(STUB, SYMBOLS))
    library = ctypes.CDLL(str(path))
    assert [getattr(library, name)() for name in SYMBOLS] == [100, 100, 100]


@X86_64
def test_versioned_lookup_finds_each_symbol_under_its_version(tmp_path: Path) -> None:
    path = tmp_path / STUB
    path.write_bytes(stub_library(STUB, SYMBOLS))
    handle = ctypes.CDLL(str(path))._handle
    lookup = ctypes.CDLL(None).dlvsym
    lookup.restype = ctypes.c_void_p
    lookup.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
    for name, version in SYMBOLS.items():
        if version:
            assert lookup(handle, name.encode(), version.encode())
    assert not lookup(handle, b"cuInit", b"libcublas.so.13")


def test_imports_of_a_real_library_are_read() -> None:
    # Python's own binary, or the library that it stands on, imports versioned symbols of libc.
    import _ctypes  # noqa: PLC0415

    file = getattr(_ctypes, "__file__", None) or sys.executable
    library = Library(Path(file).read_bytes())
    assert any(name.startswith("libc.so") for name in library.needed())
    symbols = list(library.symbols())
    assert any(s.version.startswith("GLIBC_2") for s in symbols if not s.defined)


def test_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="not a 64-bit"):
        Library(b"MZ" + b"\0" * 100)


def test_a_folder_that_asks_for_no_cuda_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="wrong folder"):
        install(tmp_path)
    assert wanted([]) == (set(), {})


@pytest.mark.parametrize(
    ("name", "cuda"),
    [
        ("libcudart.so.13", True),
        ("libnccl.so.2", True),
        ("libcurand.so.10", True),
        ("libcurl.so.4", False),
        ("libc.so.6", False),
    ],
)
def test_cuda_libraries_are_told_from_others(name: str, cuda: bool) -> None:  # noqa: FBT001
    assert bool(LIBRARY.match(name)) is cuda


def test_the_gabi_hash() -> None:
    # The System V ABI's own definition gives these; a wrong one makes the loader find nothing.
    assert sysv_hash("") == 0
    assert sysv_hash("printf") == 0x077905A6
