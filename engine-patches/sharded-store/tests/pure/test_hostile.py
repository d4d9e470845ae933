"""The client beside servers that send rubbish, or too little of anything, over real sockets.

Whatever comes, a call ends by its deadline with an answer or an ``InstanceError``, and what is told
of a key is what the bytes say of it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvserving_sharded_store.resp.connection import Connection, Credentials
from kvserving_sharded_store.resp.errors import InstanceError
from kvserving_sharded_store.resp.instance import Instance
from kvserving_sharded_store.resp.ticket import Outcome, Ticket, Verb
from kvserving_sharded_store.resp.transport import Plain

from ..hostile import PONG, Drip, Hostile

EXAMPLES = int(os.environ.get("KVSERVING_TEST_EXAMPLES", "60"))
"""Of each kind of rubbish."""
DONE, ABSENT, FAILED, CANCELLED = Outcome

sizes = st.sampled_from([1, 2, 5, 7, 11, 12, 13, 99, 300])
rubbish = st.binary(max_size=40) | st.sampled_from(
    [b"\r\n", b"$", b"$-1\r\n", b"$-1", b"$0\r\n\r\n", b"*-1\r\n", b"*1\r\n", b"-ERR x\r\n", PONG]
    + [b"-LOADING wait\r\n", b"-WRONGTYPE no\r\n", b"+OK\r\n", b":1\r\n", b":0\r\n", b":2\r\n"]
    + [b"$%d\r\n" % n for n in (1, 7, 12, 10**9, 10**30, -2)]
    + [
        b"_\r\n",
        b"#t\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x16\x03\x01\x00\x02",
        b"9" * 2000,
    ]
)


def replies(size: int) -> st.SearchStrategy[bytes]:
    right = st.binary(min_size=size, max_size=size).map(lambda v: b"$%d\r\n%b\r\n" % (size, v))
    return right | right | right | st.just(b"$-1\r\n") | rubbish


def said(stream: bytes, sizes: Sequence[int]) -> list[bytes | None]:
    """What the bytes say of the keys, up to the first that makes no sense."""
    found: list[bytes | None] = []
    for size in sizes:
        header = b"$%d\r\n" % size
        if stream.startswith(b"$-1\r\n"):
            found.append(None)
            stream = stream[5:]
            continue
        value, end = stream[len(header) :][:size], stream[len(header) + size :][:2]
        if not stream.startswith(header) or len(value) < size or end != b"\r\n":
            break
        found.append(value)
        stream = stream[len(header) + size + 2 :]
    return found


@contextlib.contextmanager
def connected(stream: bytes, cuts: Sequence[int], *, ends: str) -> Iterator[Connection]:
    """A connection whose other side says these bytes, in pieces, and then ends or says nothing."""
    near, far = socket.socketpair()
    client = Connection(Plain(near))

    def speak() -> None:
        start = 0
        with contextlib.suppress(OSError):
            far.recv(
                10_000
            )  # a socket that is closed with something unread takes back what it said
            for cut in [*sorted(cuts), len(stream)]:
                if start < cut:
                    far.sendall(stream[start:cut])
                    start = cut
            if ends == "half":
                far.shutdown(socket.SHUT_WR)
            elif ends == "whole":
                far.close()

    speaker = threading.Thread(target=speak)
    speaker.start()
    try:
        yield client
    finally:
        client.close()
        speaker.join()
        far.close()


streams = st.lists(sizes, min_size=1, max_size=6).flatmap(
    lambda wanted: st.tuples(
        st.just(wanted),
        st.tuples(*[replies(size) for size in wanted]).map(b"".join),
        rubbish | st.just(PONG) | st.just(PONG),
    )
)
cuts = st.lists(st.integers(0, 400), max_size=5)


@settings(max_examples=EXAMPLES, deadline=None)
@given(streams, cuts, st.sampled_from(["half", "whole", "silent"]))
def test_values_are_what_the_bytes_say_and_nothing_else(
    spoken: tuple[list[int], bytes, bytes], cuts: list[int], ends: str
) -> None:
    wanted, stream, end = spoken
    buffers = [bytearray(size) for size in wanted]
    told: list[bytes | None] = []

    def on_reply(index: int, present: bool) -> None:
        assert index == len(told)
        told.append(bytes(buffers[index]) if present else None)

    right = said(stream, wanted)
    whole = b"".join(b"$-1\r\n" if v is None else b"$%d\r\n%b\r\n" % (len(v), v) for v in right)
    is_right = len(right) == len(wanted) and stream + end == whole + PONG
    keys = [b"key-%d" % number for number in range(len(wanted))]
    # Right replies are there before any deadline; what is wrong may have to be waited for.
    allowed = 20.0 if is_right else 0.05
    with connected(stream + end, cuts, ends=ends) as client:
        began = time.monotonic()
        failed = True
        with contextlib.suppress(InstanceError):
            client.get(keys, [memoryview(b) for b in buffers], began + allowed, on_reply)
            failed = False
        # Under load a wake-up takes its time; a call without an end takes for ever.
        assert time.monotonic() - began < 5.0
    assert told == right[: len(told)]
    assert failed is not is_right


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.sampled_from(["exists", "remove", "set", "ping"]),
    st.integers(1, 4),
    st.lists(rubbish, max_size=5).map(b"".join),
    cuts,
    st.sampled_from(["half", "whole", "silent"]),
)
def test_short_replies(verb: str, count: int, stream: bytes, cuts: list[int], ends: str) -> None:
    keys = [b"key-%d" % number for number in range(count)]
    told: list[tuple[int, bool]] = []
    with connected(stream, cuts, ends=ends) as client:
        began = time.monotonic()
        deadline = began + 0.05

        def on_reply(index: int, good: bool) -> None:
            told.append((index, good))

        ask: Callable[[], None] = {
            "exists": lambda: client.exists(keys, deadline, on_reply),
            "remove": lambda: client.remove(keys, deadline, on_reply),
            "set": lambda: client.set(keys, [memoryview(b"v")] * count, deadline, on_reply),
            "ping": lambda: client.ping(deadline),
        }[verb]
        with contextlib.suppress(InstanceError):
            ask()
        assert time.monotonic() - began < 5.0
    lines = stream.split(b"\r\n")[:count]
    good = {"exists": b":1", "remove": b":1", "set": b"+OK"}.get(verb)
    assert told == [(index, lines[index] == good) for index in range(len(told))]


def ask(instance: Instance, verb: Verb, size: int, seconds: float) -> tuple[Outcome, ...]:
    buffers = [memoryview(bytearray(size))] if verb.carries else []
    ticket = Ticket(verb, [b"key"], buffers, time.monotonic() + seconds)
    instance.submit(ticket)
    return ticket.wait()


def test_a_value_that_comes_byte_by_byte_is_read_or_missed_by_its_deadline() -> None:
    drip = Drip(b"$60\r\n" + b"x" * 60 + b"\r\n" + PONG)
    server = Hostile(drip)
    instance = Instance(server.address)
    try:
        assert ask(instance, Verb.GET, 60, 30.0) == (DONE,)
        began = time.monotonic()
        assert ask(instance, Verb.GET, 60, 0.4)[0] in {FAILED, CANCELLED}
        assert time.monotonic() - began < 2.0
    finally:
        drip.ended.set()
        assert instance.close(5.0)
        server.close()


def test_a_server_that_takes_stores_a_few_bytes_at_a_time_keeps_nobody_waiting() -> None:
    drip = Drip(pause=0.05)
    server = Hostile(drip, window=4096)
    instance = Instance(server.address)
    try:
        stores = []
        for number in range(4):
            value = [memoryview(bytearray(64 << 20))]
            stores.append(Ticket(Verb.SET, [b"%d" % number], value, time.monotonic() + 60.0))
            instance.submit(stores[-1])
        began = time.monotonic()
        while len(instance._running) < 4:  # a lookup would go first
            assert time.monotonic() - began < 6.0
            drip.ended.wait(0.01)
        began = time.monotonic()
        assert ask(instance, Verb.EXISTS, 0, 30.0) == (FAILED,)
        assert time.monotonic() - began < 6.0
        for store in stores:
            assert store.wait() == (FAILED,)
    finally:
        drip.ended.set()
        assert instance.close(5.0)
        server.close()


def test_a_greeting_that_comes_byte_by_byte_ends_with_the_time_for_connecting() -> None:
    server = Hostile(Drip(b"+" * 500), greets=False)
    try:
        began = time.monotonic()
        with pytest.raises(InstanceError):
            Connection.open(
                server.address,
                credentials=Credentials("a", "b"),
                context=None,
                deadline=began + 0.3,
            )
        assert time.monotonic() - began < 2.0
    finally:
        server.close()
