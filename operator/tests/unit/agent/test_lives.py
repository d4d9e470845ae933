"""What follows from how an agent ended, and what one life leaves to the next."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from kvserving_agent import footprint, lives, takeover
from kvserving_agent.facts import Answer, Snapshot
from kvserving_agent.handover import Handover
from kvserving_agent.identity import Source, StartId
from kvserving_agent.listening import sockets
from kvserving_agent.lives import FIRST, End

START = StartId("one", Source.SOCKET)
KNOWN = Snapshot(
    start=START, health=Answer(12.5, good=True), models=Answer(11.25, good=False), model="tiny"
)


def end(reason: str) -> End:
    return End(reason=reason, status=1, seconds=1.0, served=True)


@pytest.mark.parametrize(
    ("wait_status", "why", "reason", "status"),
    [
        (0, "", "Exit 0", 0),
        (2 << 8, "", "Exit 2", 2),
        (signal.SIGKILL, "", "SIGKILL", 137),
        (signal.SIGKILL, lives.HUNG, "Hung", 137),
        (signal.SIGSEGV | 0x80, "", "SIGSEGV", 139),
        (1 << 8, lives.MEMORY, "Exit 1", 1),
        (50, "", "Signal 50", 178),
    ],
)
def test_an_end_is_named_by_what_ended_it(
    wait_status: int, why: str, reason: str, status: int
) -> None:
    found = lives.ended(wait_status, seconds=3.0, served=True, why=why)
    assert (found.reason, found.status) == (reason, status)


def test_the_first_two_begin_at_once_and_the_others_wait_ever_longer() -> None:
    assert [lives.pause(soon, served=True) for soon in range(8)] == [
        *(0, 0, 0.125, 0.25, 0.5, 1, 1, 1)
    ]
    unserved = [lives.pause(soon, served=False) for soon in range(2, 12)]
    assert unserved == sorted(unserved)
    assert unserved[-1] == lives.pause(10**9, served=False) == lives.MOST_UNSERVED


def test_a_life_is_told_of_all_before_it() -> None:
    past = FIRST.followed(end("SIGKILL")).followed(end("Hung")).followed(end("SIGKILL"))
    assert (FIRST.lives, FIRST.last) == (1, None)
    assert (past.lives, past.last, dict(past.ends)) == (4, "SIGKILL", {"SIGKILL": 2, "Hung": 1})


def test_what_a_life_leaves_is_taken_over_beside_the_same_engine_alone() -> None:
    shared, fresh = Handover(), Snapshot(begun=99.0)
    assert takeover.taken(shared.kept(), START, fresh) == fresh
    shared.keep(takeover.left(KNOWN))
    found = takeover.taken(shared.kept(), START, fresh)
    assert (found.health, found.models, found.model) == (KNOWN.health, KNOWN.models, "tiny")
    assert (found.start, found.begun) == (None, 99.0)
    assert takeover.taken(shared.kept(), StartId("two", Source.SOCKET), fresh) == fresh
    assert takeover.taken(shared.kept(), None, fresh) == fresh
    # An engine that is gone leaves nothing behind.
    shared.keep(takeover.left(Snapshot()))
    assert takeover.taken(shared.kept(), START, fresh) == fresh


def test_a_child_shares_the_page_and_one_killed_in_mid_write_leaves_what_was_there() -> None:
    shared = Handover()
    shared.keep({"start": "old"})
    pid = os.fork()
    if pid == 0:
        shared.beat()
        shared.keep({"start": "new"})
        os._exit(0)
    os.waitpid(pid, 0)
    assert (shared.pulse, shared.kept()) == (1, {"start": "new"})
    shared.begin()
    assert (shared.pulse, shared.kept()) == (0, {"start": "new"})
    shared.keep({"start": "x" * 4096})
    assert shared.kept() == {"start": "new"}, "what does not fit is not kept"


@pytest.mark.parametrize(
    ("file", "text", "most"),
    [
        ("memory.max", "134217728\n", 0.85 * 134217728),
        ("memory.max", "max\n", None),
        ("memory/memory.limit_in_bytes", "1000\n", 850.0),
        ("other", "1\n", None),
    ],
)
def test_the_limit_is_that_of_the_container(
    tmp_path: Path, file: str, text: str, most: float | None
) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
    assert footprint.most(tmp_path) == most


def test_the_memory_of_a_process_is_told_and_none_of_one_that_is_gone() -> None:
    assert footprint.resident(os.getpid()) > 1 << 20
    assert footprint.resident(1 << 30) == 0


def test_a_process_that_gets_no_core_is_known_by_it(tmp_path: Path) -> None:
    assert footprint.waited(os.getpid()) >= 0
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "schedstat").write_text("1000 2500000000 3\n")
    assert footprint.waited(7, tmp_path) == 2.5
    assert footprint.waited(8, tmp_path) == 0.0


def test_both_families_listen_and_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"127.0.0.1 port {port}"):
            sockets("127.0.0.1", port)
    opened = sockets("", port)
    try:
        assert {each.family for each in opened} >= {socket.AF_INET}
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
    finally:
        for each in opened:
            each.close()
