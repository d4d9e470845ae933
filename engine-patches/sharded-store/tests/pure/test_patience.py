"""A transfer is given up for what was seen of it, not for time in which nobody looked."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest

from kvserving_sharded_store.resp import transport
from kvserving_sharded_store.resp.errors import DeadlineError, InstanceError


class Clock:
    """Monotonic seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(transport, "time", SimpleNamespace(monotonic=found.monotonic))
    return found


def quiet_call(clock: Clock, patience: transport._Patience, seconds: float = 0.5) -> None:
    """A call that ends without a byte after its time."""
    patience.seconds()
    clock.now += seconds
    patience.failed(BlockingIOError())


def test_a_quiet_transfer_is_given_up_after_two_seconds(clock: Clock) -> None:
    patience = transport._Patience(clock.now + 30)
    for _ in range(3):
        quiet_call(clock, patience)
    with pytest.raises(DeadlineError):
        quiet_call(clock, patience)
    assert clock.now == 102.0


def test_a_pause_of_this_process_counts_for_one_look(clock: Clock) -> None:
    patience = transport._Patience(clock.now + 30)
    quiet_call(clock, patience)
    quiet_call(clock, patience, 2.5)
    clock.now += 2.5
    assert patience.seconds() == 0.5
    patience.moved(65536)
    for _ in range(3):
        quiet_call(clock, patience)
    with pytest.raises(DeadlineError):
        quiet_call(clock, patience)


def test_many_short_reads_before_a_pause_do_not_make_it_quiet(clock: Clock) -> None:
    patience = transport._Patience(clock.now + 30)
    for _ in range(10):
        patience.seconds(2.0)
        clock.now += 0.01
        patience.moved(16)
    clock.now += 3.0
    assert patience.seconds(2.0) == 2.0


def test_a_trickle_is_given_up_after_two_seconds_however_often_it_moves(clock: Clock) -> None:
    patience = transport._Patience(clock.now + 30)
    for _ in range(16):
        patience.seconds()
        clock.now += 0.125
        patience.moved(1024)
    with pytest.raises(DeadlineError, match="next to nothing"):
        patience.seconds()


def test_the_deadline_and_what_is_no_time_out_end_it_at_once(clock: Clock) -> None:
    patience = transport._Patience(clock.now + 0.75)
    quiet_call(clock, patience)
    assert patience.seconds() == 0.25
    clock.now += 0.25
    with pytest.raises(DeadlineError):
        patience.failed(BlockingIOError())
    with pytest.raises(InstanceError, match="reset"):
        transport._Patience(clock.now + 30).failed(ConnectionResetError(104, "reset"))


def test_a_silent_peer_is_given_up_by_the_kernels_clock() -> None:
    near, far = socket.socketpair()
    began = transport.time.monotonic()
    with far:
        plain = transport.Plain(near)
        with pytest.raises(DeadlineError):
            plain.some(1, began + 30)
        plain.close()
    assert 2.0 <= transport.time.monotonic() - began < 6.0
