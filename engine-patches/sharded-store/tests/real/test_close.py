"""Whatever waits for an instance that says nothing, closing ends it: at once, or within a connect.

Each of these waits could outlast a close. Closed, a tier leaves no thread and no question without
an outcome: an engine's memory is given back, and its process can end.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from kvserving_sharded_store.address import Address
from kvserving_sharded_store.resp.instance import Instance
from kvserving_sharded_store.resp.ticket import Outcome, Ticket, Verb
from kvserving_sharded_store.resp.work import Options
from kvserving_sharded_store.tier import Ask, Tier

from .engines import Engine
from .group import COUNT, instances, options
from .servers import Deaf, Server, until
from .serving import lasting_port
from .test_resp import connect_all, empty, make, run, ticket
from .test_tls import certificate, sealed

MOMENT = 1.5
"""Seconds for what has to be broken off: below any deadline of these tests, and below the two
seconds after which an instance that says nothing is given up."""
CONNECT = 1.6
"""Seconds where a connection is being made, which may take one."""
LONG = 60.0
"""Seconds allowed to what is asked."""


def closes(closed: Instance | Tier, waiting: list[Ticket] | list[Ask], seconds: float) -> None:
    """Close, and see that nothing is left."""
    finals = threading.Semaphore(0)
    for each in waiting:
        each.when_final(lambda _done: finals.release())  # type: ignore[arg-type]
    began = time.monotonic()
    assert closed.close(), "a thread did not end"
    spent = time.monotonic() - began
    assert spent < seconds
    assert all(finals.acquire(timeout=0) for _ in waiting), "a question is without an outcome"


def asks(instance: Instance, verb: Verb, size: int = 4 << 20, times: int = 1) -> list[Ticket]:
    """Something of every thread."""
    keys, values = make(16, size)
    made = [ticket(verb, keys, values if verb.carries else [], seconds=LONG) for _ in range(times)]
    for asked in made:
        instance.submit(asked)
    return made


@pytest.fixture
def frozen(server: Server) -> Iterator[Callable[[], None]]:
    with ExitStack() as stack:

        def freeze() -> None:
            server.freeze()
            stack.callback(server.thaw)

        yield freeze


@pytest.mark.parametrize("verb", [Verb.EXISTS, Verb.GET, Verb.SET, Verb.REMOVE])
def test_every_verb_over_connections_to_an_instance_that_is_frozen(
    server: Server, frozen: Callable[[], None], verb: Verb
) -> None:
    instance = Instance(server.address)
    connect_all(instance)
    frozen()
    asked = asks(instance, verb, times=3)
    until(lambda: bool(instance._running))
    closes(instance, asked, MOMENT)


def test_a_batch_of_which_a_part_was_answered(server: Server) -> None:
    keys, values = make(4, 32 << 20)
    for _ in range(20):
        instance = Instance(server.address)
        connect_all(instance)
        run(instance, Verb.SET, keys, values, seconds=LONG)
        asked = ticket(Verb.GET, keys, empty(values), seconds=LONG)
        instance.submit(asked)
        until(lambda asked=asked: Outcome.DONE in asked.outcomes())  # type: ignore[misc]
        server.freeze()
        try:
            # What its threads have read of the kernel's buffers they may still settle.
            until(lambda instance=instance: len(instance._running) < 4)  # type: ignore[misc]
            partly = not asked.is_final
            closes(instance, [asked], MOMENT)
        finally:
            server.thaw()
        if partly:
            return
    pytest.fail("all parts were answered each time")


def test_connecting_to_one_that_is_frozen_or_to_none_that_answers(
    server: Server, frozen: Callable[[], None]
) -> None:
    frozen()
    instance = Instance(server.address)
    asked = asks(instance, Verb.GET)
    until(lambda: bool(instance._running))
    closes(instance, asked, CONNECT)
    with closing(Deaf(lasting_port())) as deaf:
        instance = Instance(Address("127.0.0.1", deaf.port))
        asked = asks(instance, Verb.SET)
        until(lambda: bool(instance._running))
        closes(instance, asked, CONNECT)


def test_a_handshake_with_one_that_is_frozen(tmp_path: Path) -> None:
    port = lasting_port()
    server = sealed(port, certificate(tmp_path, "server"))
    server.freeze()
    try:
        context = ssl.create_default_context()
        instance = Instance(Address("127.0.0.1", port, tls=True), Options(context=context))
        asked = asks(instance, Verb.GET)
        until(lambda: bool(instance._running))
        closes(instance, asked, CONNECT)
    finally:
        server.kill()


def test_looking_for_one_that_was_given_up(server: Server, frozen: Callable[[], None]) -> None:
    instance = Instance(server.address)
    connect_all(instance)
    frozen()
    asked = asks(instance, Verb.EXISTS)
    short = ticket(Verb.EXISTS, [b"a"], seconds=0.7)
    instance.submit(short)
    until(lambda: instance.is_open)
    until(lambda: instance._retrying)
    closes(instance, [*asked, short], CONNECT)


@contextmanager
def resolver(answer: Callable[[], list[tuple[object, ...]]]) -> Iterator[None]:
    stock = socket.getaddrinfo
    socket.getaddrinfo = lambda *_a, **_b: answer()  # type: ignore[assignment, misc]
    try:
        yield
    finally:
        socket.getaddrinfo = stock


def test_a_name_that_nobody_resolves_holds_up_no_question_and_no_close() -> None:
    answered = threading.Event()

    def silent() -> list[tuple[object, ...]]:
        assert answered.wait(LONG)
        raise socket.gaierror(socket.EAI_AGAIN, "nobody answers")

    tier = Tier([Address("one", 1), Address("two", 1), Address("three", 1)], Options())
    with resolver(silent):
        asked = [tier.ask(Verb.EXISTS, [b"%d" % n for n in range(30)], [], LONG)]
        until(lambda: all(instance._running for instance in tier.instances))
        began = time.monotonic()
        assert not tier.close(0.3), "these threads cannot be interrupted"
        assert time.monotonic() - began < 0.3 + MOMENT, "all together, not one after the other"
        assert set(asked[0].wait()) == {Outcome.CANCELLED}
        answered.set()
        assert tier.close()


def test_a_host_of_many_addresses_of_which_none_answers_takes_no_longer_than_one() -> None:
    with closing(Deaf(lasting_port())) as deaf:
        place = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", deaf.port))
        with resolver(lambda: [place] * 8):
            instance = Instance(Address("many", deaf.port))
            began = time.monotonic()
            run(instance, Verb.EXISTS, [b"a"], seconds=LONG)
            assert time.monotonic() - began < CONNECT
            closes(instance, [], CONNECT)


def test_one_that_answers_is_found_behind_one_that_does_not(server: Server) -> None:
    with closing(Deaf(lasting_port())) as deaf:
        places = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))
            for port in (deaf.port, server.port)
        ]
        with resolver(lambda: places):
            instance = Instance(Address("both", server.port))
            assert run(instance, Verb.EXISTS, [b"a"], seconds=LONG) == (Outcome.ABSENT,)
            closes(instance, [], MOMENT)


@pytest.mark.parametrize("silent", ["frozen", "unreachable"])
def test_an_engine_with_all_its_instances_silent(silent: str) -> None:
    with instances(2) as servers, ExitStack() as stack:
        engine = Engine(2, **options(servers))
        stack.callback(engine.kill)
        for prompt in range(3):
            engine.all("store", prompt, COUNT)
        engine.all("stored")
        engine.all("forget_local")
        for server in servers:
            if silent == "frozen":
                server.freeze()
                stack.callback(server.thaw)
            else:
                server.kill()
                stack.enter_context(closing(Deaf(server.port)))
        # Lookups, fetches, stores and a probe; nobody waits for any of them.
        engine.all("busy", range(3), range(10, 14), COUNT)
        assert max(engine.all("close")) < 4.0
        assert engine.all("held") == [0, 0]
