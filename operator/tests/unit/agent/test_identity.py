from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from kvserving_agent.identity import Source, from_listener, from_start_time

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid inode\n"


def line(number: int, address: str, port: int, state: str, inode: int) -> str:
    return (
        f"{number:4}: {address}:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000"
        f" 00000000 65532        0 {inode} 1 0000000000000000 100 0 0 10 0\n"
    )


def make_proc(tmp_path: Path, *, tcp: str = "", tcp6: str = "", boot: str = "boot-a") -> Path:
    (tmp_path / "net").mkdir(exist_ok=True)
    (tmp_path / "net/tcp").write_text(HEAD + tcp)
    (tmp_path / "net/tcp6").write_text(HEAD + tcp6)
    kernel = tmp_path / "sys/kernel/random"
    kernel.mkdir(parents=True, exist_ok=True)
    (kernel / "boot_id").write_text(boot + "\n")
    return tmp_path


def identify(tmp_path: Path, **tables: str) -> str | None:
    found = from_listener(8000, make_proc(tmp_path, **tables))
    assert found is None or found.source is Source.SOCKET
    return found.value if found else None


def test_the_id_follows_the_listening_socket_and_nothing_else(tmp_path: Path) -> None:
    engine = line(0, "00000000", 8000, "0A", 4711)
    first = identify(tmp_path, tcp=engine)
    others = (
        line(1, "00000000", 9095, "0A", 99)
        + line(2, "0100007F", 8000, "01", 5)
        + line(3, "0100007F", 45000, "01", 6)
        + line(4, "0100007F", 8000, "06", 0)
    )
    assert first is not None
    assert identify(tmp_path, tcp=engine + others) == first
    assert identify(tmp_path, tcp=line(0, "00000000", 8000, "0A", 4712)) not in (None, first)


def test_after_a_reboot_the_same_inode_is_another_engine(tmp_path: Path) -> None:
    engine = line(0, "00000000", 8000, "0A", 4711)
    assert identify(tmp_path, tcp=engine) != identify(tmp_path, tcp=engine, boot="boot-b")


def test_nobody_listening_is_no_id(tmp_path: Path) -> None:
    connection = line(0, "0100007F", 8000, "01", 4711)
    assert identify(tmp_path, tcp=connection) is None
    assert from_listener(8000, tmp_path / "absent") is None


def test_an_engine_on_ipv6_has_an_id(tmp_path: Path) -> None:
    assert identify(tmp_path, tcp6=line(0, "0" * 32, 8000, "0A", 4711)) is not None


def test_several_listeners_in_any_order_are_one_id(tmp_path: Path) -> None:
    one, two = (line(n, "00000000", 8000, "0A", 10 + n) for n in (0, 1))
    assert identify(tmp_path, tcp=one + two) == identify(tmp_path, tcp=two + one)


@pytest.mark.parametrize("junk", ["garbage\n", "a b c\n", "\n", "\0" * 500])
def test_a_strange_table_does_not_raise(tmp_path: Path, junk: str) -> None:
    assert identify(tmp_path, tcp=junk) is None


def test_real_sockets_of_this_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
        known = from_listener(port)
        assert known is not None
        # A child that shares the socket, and clients, do not change it.
        with socket.create_connection(("127.0.0.1", port)), os.fdopen(os.dup(first.fileno())):
            assert from_listener(port) == known
    assert from_listener(port) is None
    with socket.create_server(("127.0.0.1", port)):
        again = from_listener(port)
    assert again is not None
    assert again != known


def test_a_start_time_is_an_id_of_its_own_kind() -> None:
    one = from_start_time(1764493200.25)
    assert one.source is Source.START_TIME
    assert one == from_start_time(1764493200.25)
    assert one != from_start_time(1764493201.25)
