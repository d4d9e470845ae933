"""Outcomes settle once, giving up is final at once for what nobody touches, callbacks run once."""

import threading
import time

import pytest

from kvserving_sharded_store.resp.ticket import Outcome, Ticket, Verb
from kvserving_sharded_store.resp.work import Options, Work


def make(count: int = 4, seconds: float = 10.0, verb: Verb = Verb.EXISTS) -> Ticket:
    keys = [b"%d" % number for number in range(count)]
    buffers = [] if verb is Verb.EXISTS else [memoryview(bytearray(1)) for _ in keys]
    return Ticket(verb, keys, buffers, time.monotonic() + seconds)


def test_the_first_outcome_counts_and_callbacks_run_once_when_all_are_final() -> None:
    ticket = make(2)
    seen: list[int] = []
    ticket.when_final(lambda _ticket: seen.append(1))
    ticket.settle(0, Outcome.DONE)
    ticket.settle(0, Outcome.FAILED)
    assert (ticket.is_final, seen) == (False, [])
    ticket.settle(1, Outcome.ABSENT)
    ticket.settle(1, Outcome.DONE)
    ticket.when_final(lambda _ticket: seen.append(2))
    assert ticket.wait() == (Outcome.DONE, Outcome.ABSENT)
    assert seen == [1, 2]


def test_cancelling_spares_only_what_a_thread_touches() -> None:
    ticket = make(4)
    broken: list[str] = []
    token = ticket.claim(1, 3, lambda: broken.append("socket"))
    assert token is not None
    ticket.cancel()
    assert broken == ["socket"]
    assert not ticket.is_final
    assert ticket.claim(0, 1, lambda: None) is None
    ticket.settle(1, Outcome.DONE)
    ticket.settle(2, Outcome.CANCELLED)
    ticket.release(token)
    assert ticket.outcomes() == (
        Outcome.CANCELLED,
        Outcome.DONE,
        Outcome.CANCELLED,
        Outcome.CANCELLED,
    )
    ticket.cancel()
    assert broken == ["socket"]


def test_waiting_ends_at_the_deadline_and_gives_up() -> None:
    ticket = make(1, seconds=0.05)
    began = time.monotonic()
    assert ticket.wait() == (Outcome.CANCELLED,)
    assert 0.04 < time.monotonic() - began < 5.0
    assert ticket.given_up


def test_a_waiter_returns_when_another_thread_gives_up() -> None:
    ticket = make(1, seconds=60.0)
    threading.Timer(0.05, ticket.cancel).start()
    assert ticket.wait() == (Outcome.CANCELLED,)


def test_an_empty_batch_is_final_from_the_start() -> None:
    assert make(0).wait() == ()


def test_buffers_must_fit_the_keys() -> None:
    for verb, buffers in (
        (Verb.GET, []),
        (Verb.EXISTS, [memoryview(bytearray(1))]),
        (Verb.SET, [memoryview(b"")]),
    ):
        with pytest.raises(ValueError, match="buffer"):
            Ticket(verb, [b"k"], buffers, 0.0)


def test_lookups_come_before_loads_before_stores_and_threads_share_a_batch() -> None:
    work = Work()
    options = Options(threads=4, pipeline=3)
    stores, loads, lookup = make(4, verb=Verb.SET), make(20, verb=Verb.GET), make(50)
    for ticket in (stores, loads, lookup):
        work.add(ticket, options)
    order = []
    while (part := work.pop()) is not None:
        order.append((part.ticket.verb, part.start, part.stop))
    assert order[0] == (Verb.EXISTS, 0, 50)
    assert order[1:8] == [(Verb.GET, s, min(s + 3, 20)) for s in range(0, 20, 3)]
    assert order[8:] == [(Verb.SET, s, s + 1) for s in range(4)]
    assert work.drain() == []
