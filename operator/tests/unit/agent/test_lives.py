"""What follows from how an agent ended, and what one life leaves to the next."""

from __future__ import annotations

import itertools
import mmap
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvserving_agent import footprint, handover, lives, serve, supervisor, takeover
from kvserving_agent.engine import Engine
from kvserving_agent.facts import Answer, Snapshot
from kvserving_agent.footprint import Turn
from kvserving_agent.handover import Handover
from kvserving_agent.identity import Source, StartId
from kvserving_agent.listening import sockets
from kvserving_agent.lives import FIRST, End
from kvserving_agent.local import new_session
from kvserving_agent.supervisor import Life
from kvserving_agent.watch import Watcher

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


def forked(body: Callable[[], object]) -> int:
    """Run it in a child; the child's exit status."""
    pid = os.fork()
    if pid == 0:
        try:
            body()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_child_shares_the_page_and_what_does_not_fit_is_not_kept() -> None:
    shared = Handover()
    shared.keep({"start": "old"})

    def live() -> None:
        shared.beat()
        shared.keep({"start": "new"})

    forked(live)
    assert (shared.pulse, shared.kept()) == (1, {"start": "new"})
    shared.begin()
    assert (shared.pulse, shared.kept()) == (0, {"start": "new"})
    shared.keep({"start": "x" * 4096})
    assert shared.kept() == {"start": "new"}


class Torn(mmap.mmap):
    """Memory whose process is killed half way through a text, once told to be."""

    dies = False

    def __setitem__(self, key: Any, value: Any) -> None:
        if self.dies and isinstance(key, slice):
            half = len(value) // 2
            super().__setitem__(slice(key.start, key.start + half), value[:half])
            os._exit(9)
        super().__setitem__(key, value)


def test_one_that_is_killed_in_mid_write_leaves_what_it_wrote_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handover, "mmap", SimpleNamespace(mmap=Torn))
    shared = Handover()
    for turn in ("first", "second", "third"):
        before = {"start": turn}
        shared.keep(before)
        with monkeypatch.context() as killed:
            killed.setattr(Torn, "dies", True)
            longer: dict[str, object] = {"start": turn, "model": "longer than it was before"}
            assert forked(lambda longer=longer: shared.keep(longer)) == 9
        assert shared.kept() == before


def listening_engine() -> Iterator[StartId | None]:
    """The start that listens, look after look: the engine restarts after the first."""
    yield START
    yield from itertools.repeat(StartId("two", Source.SOCKET))


async def test_an_engine_that_restarts_at_the_first_look_inherits_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serve, "FIRST_LOOK_SECONDS", 0.1)
    shared, looks = Handover(), listening_engine()
    shared.keep(takeover.left(KNOWN))
    # It takes connections and answers none.
    with socket.create_server(("127.0.0.1", 0)) as engine:
        port = engine.getsockname()[1]
        async with new_session() as session:
            watcher = Watcher(
                Engine(session, f"http://127.0.0.1:{port}", set()),
                table={},
                listener=lambda: next(looks),
                probe_period=1.0,
                scrape_period=1.0,
                stale_after=1.0,
            )
            await serve._look_first(watcher, Life(FIRST, [], shared))
    assert watcher.known.start == StartId("two", Source.SOCKET)
    assert (watcher.known.health, watcher.known.models, watcher.known.model) == (None, None, None)


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


def test_how_a_process_fares_for_cores_is_read_from_the_kernel(tmp_path: Path) -> None:
    mine = footprint.turn(os.getpid())
    assert (mine.state, mine.used >= 0, mine.waited >= 0) == ("R", True, True)
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "schedstat").write_text("1000 2500000000 3\n")
    assert footprint.turn(7, tmp_path) == Turn(waited=2.5)
    numbers = " ".join(str(number) for number in range(4, 50))
    (tmp_path / "7" / "stat").write_text(f"7 (an (odd) name) R {numbers}\n")
    assert footprint.turn(7, tmp_path) == Turn("R", 14 + 15, 2.5)
    assert footprint.turn(8, tmp_path) == Turn()


@pytest.mark.parametrize(
    ("after", "is_starved"),
    [
        (Turn("R", 5, 1.0), True),
        (Turn("R", 5, 1.6), True),
        (Turn("S", 5, 1.6), True),
        # It ran, it sleeps, it is stopped: whoever does not beat then is at fault itself.
        (Turn("R", 6, 1.0), False),
        (Turn("R", 105, 1.1), False),
        (Turn("S", 5, 1.0), False),
        (Turn("T", 5, 1.0), False),
        (Turn(), False),
    ],
)
def test_one_that_waits_for_a_core_is_told_from_one_that_hangs(
    after: Turn, is_starved: object
) -> None:
    assert footprint.starved(Turn("R", 5, 1.0), after, 1.0) is is_starved


def test_an_agent_that_cannot_be_bound_to_its_supervisor_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor, "_PARENT_DEATH", 1 << 20)
    supervisor._die_with(os.getppid())
    (record,) = caplog.records
    assert ("prctl" in record.message, vars(record)["why"]) == (True, "Invalid argument")


def test_both_families_listen_and_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            OSError, match=f"^KVSERVING_AGENT_PORT is {port}: 127.0.0.1 .* in use; .* a port that"
        ):
            sockets("127.0.0.1", port)
    opened = sockets("", port)
    try:
        assert {each.family for each in opened} >= {socket.AF_INET}
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
    finally:
        for each in opened:
            each.close()


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1", "x" * 70, "a..b"])
def test_a_host_that_is_not_here_is_told_with_its_setting_and_what_it_must_be(host: str) -> None:
    with pytest.raises(OSError, match=f"^KVSERVING_AGENT_HOST is '?{host}'?: .* empty for all"):
        sockets(host, 0)
