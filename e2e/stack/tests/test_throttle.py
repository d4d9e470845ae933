from __future__ import annotations

from pathlib import Path

import pytest

from stack.throttle import has_address, process_in

FIB = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 10.87.0.7
        /32 host LOCAL
     |-- 10.87.0.8
        /32 link UNICAST
"""


def test_an_address_is_a_namespace_s_own_or_only_known_to_it() -> None:
    assert has_address(FIB, "10.87.0.7")
    assert not has_address(FIB, "10.87.0.8")
    assert not has_address(FIB, "10.87.0")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    for pid, namespace, fib in (("1", "net:[1]", ""), ("7", "net:[2]", FIB)):
        (tmp_path / pid / "ns").mkdir(parents=True)
        (tmp_path / pid / "net").mkdir()
        (tmp_path / pid / "ns" / "net").symlink_to(namespace)
        (tmp_path / pid / "net" / "fib_trie").write_text(fib)
    (tmp_path / "9").mkdir()  # ended while it was looked at
    (tmp_path / "self").mkdir()
    return tmp_path


def test_a_process_is_found_by_its_pod_s_address(proc: Path) -> None:
    assert process_in("10.87.0.7", proc) == 7
    assert process_in("10.87.0.9", proc) is None
