"""The client against a real Valkey: values, misses, broken servers, and that nothing ever hangs."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from kvserving_sharded_store.resp.connection import Connection, Credentials
from kvserving_sharded_store.resp.instance import Instance
from kvserving_sharded_store.resp.ticket import Outcome, Ticket, Verb
from kvserving_sharded_store.resp.work import Options

from .proxy import Proxy
from .servers import Server, until

SIZE = 1 << 20
DONE, ABSENT, FAILED, CANCELLED = Outcome


def ticket(
    verb: Verb, keys: list[bytes], buffers: list[bytearray] | None = None, seconds: float = 10.0
) -> Ticket:
    views = [memoryview(buffer) for buffer in buffers or []]
    return Ticket(verb, keys, views, time.monotonic() + seconds)


def run(instance: Instance, *args: object, **more: float) -> tuple[Outcome, ...]:
    asked = ticket(*args, **more)  # type: ignore[arg-type]
    instance.submit(asked)
    return asked.wait()


def make(count: int, size: int = SIZE) -> tuple[list[bytes], list[bytearray]]:
    keys = [b"key-%d" % number for number in range(count)]
    return keys, [bytearray(os.urandom(size)) for _ in keys]


def empty(values: list[bytearray]) -> list[bytearray]:
    return [bytearray(len(value)) for value in values]


def connect_all(instance: Instance) -> None:
    """Let every thread have a connection that is alive."""
    together, met = threading.Barrier(4), threading.Semaphore(0)

    def meet(_done: Ticket) -> None:
        together.wait(10.0)
        met.release()

    for _ in range(4):
        # Each is held by a thread until every thread has one.
        asked = ticket(Verb.EXISTS, [b"none"])
        asked.when_final(meet)
        instance.submit(asked)
    assert all(met.acquire(timeout=10.0) for _ in range(4))
    until(lambda: not instance._running)


@pytest.fixture(params=[0, 1 << 20], ids=["any", "1 MiB"])
def instance(server: Server, request: pytest.FixtureRequest) -> Iterator[Instance]:
    made = Instance(server.address, Options(low_water=request.param))
    yield made
    assert made.close(5.0)


@pytest.mark.parametrize("size", [1, 5, 99, 100, 12_345, SIZE, 2 * SIZE, 5 * SIZE + 3])
def test_values_of_any_size_come_back_equal(instance: Instance, size: int) -> None:
    keys, values = make(9, size)
    assert run(instance, Verb.SET, keys, values) == (DONE,) * 9
    assert run(instance, Verb.EXISTS, [*keys, b"none"]) == (*[DONE] * 9, ABSENT)
    read = empty(values)
    assert run(instance, Verb.GET, keys, read) == (DONE,) * 9
    assert read == values
    assert instance.owed == 0
    assert instance.stats.counts()["bytes_read"] == 9 * size


@pytest.mark.parametrize("size", [1, SIZE])
@pytest.mark.parametrize("seed", range(6))
def test_missing_keys_are_misses_and_the_rest_is_read(
    server: Server, instance: Instance, size: int, seed: int
) -> None:
    chance = random.Random(seed)
    keys, values = make(24, size)
    assert set(run(instance, Verb.SET, keys, values)) == {DONE}
    gone = set(chance.sample(range(24), chance.randrange(1, 24)))
    for index in gone:
        server.ask(b"DEL", keys[index])
    read = empty(values)
    began = time.monotonic()
    outcomes = run(instance, Verb.GET, keys, read)
    assert time.monotonic() - began < 5.0
    assert outcomes == tuple(ABSENT if index in gone else DONE for index in range(24))
    assert all(read[i] == values[i] for i in range(24) if i not in gone)
    assert run(instance, Verb.GET, [keys[0]], [bytearray(size)])[0] in {DONE, ABSENT}
    assert instance.stats.counts()["connects"] <= 4


def test_a_value_of_another_length_is_never_returned(server: Server, instance: Instance) -> None:
    keys, values = make(4)
    run(instance, Verb.SET, keys, values)
    # Longer, shorter, and of the same number of digits and leading ones.
    for wrong in (SIZE * 16, 17, SIZE + 1, SIZE - 1):
        server.ask(b"SETRANGE", b"wrong", b"%d" % (wrong - 1), b"x")
        until(lambda length=wrong: server.ask(b"STRLEN", b"wrong") == b":%d\r\n" % length)
        began = time.monotonic()
        outcomes = run(instance, Verb.GET, [keys[0], b"wrong", keys[1]], empty(values[:3]))
        assert time.monotonic() - began < 2.0, "seen in the header, not at the deadline"
        assert outcomes == (DONE, FAILED, DONE)
        server.ask(b"DEL", b"wrong")
        assert not instance.is_open, "one value says nothing of the instance"
        read = empty(values)
        assert run(instance, Verb.GET, keys, read) == (DONE,) * 4
        assert read == values


@pytest.mark.parametrize("size", [100, 1000, 12_345, SIZE])
@pytest.mark.parametrize("other", [1, 9, 10, 17, 99, 999, 10_000, 12_344, 12_346, SIZE - 1])
def test_no_pair_of_lengths_waits_for_bytes_that_do_not_come(
    server: Server, instance: Instance, size: int, other: int
) -> None:
    server.ask(b"SETRANGE", b"wrong", b"%d" % (other - 1), b"x")
    began = time.monotonic()
    assert run(instance, Verb.GET, [b"wrong"], [bytearray(size)]) == (FAILED,)
    assert time.monotonic() - began < 2.0


@pytest.mark.parametrize(("size", "low_water"), [(4096, 0), (4096 << 10, 1 << 20)])
def test_a_proxy_that_lies_cuts_or_stalls_costs_one_deadline(
    server: Server, size: int, low_water: int
) -> None:
    keys, values = make(6, size)
    direct = Instance(server.address)
    run(direct, Verb.SET, keys, values)
    proxy = Proxy(server.port)
    through = Instance(proxy.address, Options(low_water=low_water))
    try:
        for fault in ("length", "cut", "stall", "garbage", "close"):
            proxy.fault = fault
            began = time.monotonic()
            outcomes = run(through, Verb.GET, keys, empty(values), seconds=1.0)
            assert time.monotonic() - began < 1.5, fault
            assert DONE not in outcomes or fault == "cut", (fault, outcomes)
            proxy.fault = ""
            proxy.drop()
            until(lambda: not through.is_open)
            until(lambda: run(through, Verb.GET, keys, empty(values), seconds=2.0) == (DONE,) * 6)
        read = empty(values)
        assert run(through, Verb.GET, keys, read) == (DONE,) * 6
        assert read == values
    finally:
        assert through.close(5.0)
        assert direct.close(5.0)
        proxy.close()


def test_killed_in_mid_load_and_restarted_empty(server: Server, instance: Instance) -> None:
    keys, values = make(32)
    run(instance, Verb.SET, keys, values)
    asked = ticket(Verb.GET, keys * 8, empty(values) * 8)
    instance.submit(asked)
    until(lambda: instance.stats.counts().get("get_done", 0) > 8)
    server.kill()
    began = time.monotonic()
    outcomes = asked.wait()
    assert time.monotonic() - began < 2.0
    assert FAILED in outcomes
    # Dead: a miss at once, not one deadline per request.
    until(lambda: instance.is_open)
    read = empty(values)
    began = time.monotonic()
    for _ in range(200):
        assert run(instance, Verb.GET, keys, read) == (FAILED,) * 32
    assert time.monotonic() - began < 2.0
    server.start()
    began = time.monotonic()
    until(lambda: not instance.is_open)
    assert time.monotonic() - began < 5.0
    assert run(instance, Verb.GET, keys[:2], empty(values[:2])) == (ABSENT,) * 2
    assert run(instance, Verb.SET, keys, values) == (DONE,) * 32
    read = empty(values)
    assert run(instance, Verb.GET, keys, read) == (DONE,) * 32
    assert read == values


def test_a_frozen_server_costs_one_deadline_and_then_nothing(
    server: Server, instance: Instance
) -> None:
    keys, values = make(1, 1000)
    run(instance, Verb.SET, keys, values)
    server.freeze()
    try:
        began = time.monotonic()
        assert run(instance, Verb.GET, keys, empty(values), seconds=0.7)[0] in {FAILED, CANCELLED}
        assert 0.6 < time.monotonic() - began < 1.2
        until(lambda: instance.is_open)
        began = time.monotonic()
        assert run(instance, Verb.GET, keys, empty(values), seconds=5.0) == (FAILED,)
        assert time.monotonic() - began < 0.3
    finally:
        server.thaw()
    until(lambda: not instance.is_open)
    assert run(instance, Verb.GET, keys, empty(values)) == (DONE,)


def test_deadlines_that_are_too_short_say_nothing_of_the_instance(
    server: Server, instance: Instance
) -> None:
    keys, values = make(8, 1000)
    run(instance, Verb.SET, keys, values)
    chance = random.Random(2)
    missed = 0
    for _ in range(400):
        allowed = chance.choice([0.0, 0.00005, 0.0001, 0.0002])
        verb = chance.choice([Verb.GET, Verb.EXISTS])
        buffers = empty(values) if verb is Verb.GET else None
        missed += set(run(instance, verb, keys, buffers, seconds=allowed)) != {DONE}
    assert missed >= 100
    assert instance.stats.counts().get("breaker_openings", 0) == 0
    read = empty(values)
    assert run(instance, Verb.GET, keys, read) == (DONE,) * 8
    assert read == values


def test_what_waited_for_too_long_costs_no_connection(server: Server, instance: Instance) -> None:
    keys, values = make(8)
    run(instance, Verb.SET, keys, values)
    run(instance, Verb.GET, keys, empty(values))
    connects = instance.stats.counts()["connects"]
    # Behind these, nothing else is begun before its deadline.
    long = [ticket(Verb.GET, keys, empty(values), seconds=60.0) for _ in range(30)]
    short = [ticket(Verb.GET, keys, empty(values), seconds=0.01) for _ in range(50)]
    for each in (*long, *short):
        instance.submit(each)
    assert all(each.wait() == (DONE,) * 8 for each in long)
    until(lambda: all(each.is_final for each in short))
    assert any(each.outcomes() == (FAILED,) * 8 for each in short)
    counts = instance.stats.counts()
    assert counts["connects"] == connects
    assert (counts.get("connect_failures", 0), counts.get("breaker_openings", 0)) == (0, 0)


def test_stores_into_a_host_that_is_gone_do_not_keep_anybody_waiting(
    server: Server, instance: Instance
) -> None:
    keys, values = make(4, 16 * SIZE)
    connect_all(instance)
    server.freeze()
    try:
        began = time.monotonic()
        # More than fits the sockets: every thread is held up in the middle of a value.
        stores = [
            ticket(Verb.SET, [key], [value], 60.0) for key, value in zip(keys, values, strict=True)
        ]
        for each in stores:
            instance.submit(each)
        until(lambda: len(instance._running) == 4)
        assert run(instance, Verb.EXISTS, keys[:1], seconds=30.0) == (FAILED,)
        assert time.monotonic() - began < 4.0
        assert instance.is_open
    finally:
        server.thaw()
    began = time.monotonic()
    until(lambda: not instance.is_open)
    assert time.monotonic() - began < 3.0
    until(lambda: all(each.is_final for each in stores), 5.0)
    assert run(instance, Verb.EXISTS, keys[:1])[0] in {DONE, ABSENT}


def test_idle_connections_that_were_closed_cost_no_miss(server: Server, instance: Instance) -> None:
    keys, values = make(1, 100_000)
    run(instance, Verb.SET, keys, values)
    for _ in range(20):
        connect_all(instance)
        killed = server.ask(b"CLIENT", b"KILL", b"TYPE", b"normal", b"SKIPME", b"yes")
        assert int(killed[1:-2]) >= 4
        read = empty(values)
        assert run(instance, Verb.GET, keys, read) == (DONE,)
        assert read == values
    assert instance.stats.counts().get("breaker_openings", 0) == 0


def test_aborts_give_buffers_back_at_once_and_the_instance_goes_on(
    server: Server, instance: Instance
) -> None:
    keys, values = make(8)
    run(instance, Verb.SET, keys, values)
    chance = random.Random(1)
    final = threading.Semaphore(0)
    for _ in range(300):
        asked = ticket(Verb.GET, keys, empty(values), seconds=chance.choice([0.0, 0.001, 1.0]))
        asked.when_final(lambda _done: final.release())
        instance.submit(asked)
        if chance.random() < 0.7:
            asked.cancel()
        else:
            asked.wait()
        assert final.acquire(timeout=2.0), "buffers still in use"
    assert instance.owed == 0
    until(lambda: not instance.is_open)
    read = empty(values)
    assert run(instance, Verb.GET, keys, read) == (DONE,) * 8
    assert read == values


def test_user_password_and_their_change() -> None:
    acl = "engine on >{} -@all +get +set +exists +ping +auth +select resetchannels ~*"
    secured = Server("--user", *acl.format("one").split(), "--user", "default", "off").start()
    password = ["one"]
    instance = Instance(
        secured.address, Options(credentials=lambda: Credentials("engine", password[0]))
    )
    refused = Instance(secured.address, Options(credentials=lambda: Credentials("engine", "x")))
    try:
        keys, values = make(3, 1000)
        assert run(instance, Verb.SET, keys, values) == (DONE,) * 3
        assert run(refused, Verb.GET, keys, empty(values)) == (FAILED,) * 3
        assert refused.is_open
        secured.kill()
        secured.options = ("--user", *acl.format("two").split(), "--user", "default", "off")
        secured.start()
        assert set(run(instance, Verb.GET, keys, empty(values))) == {FAILED}
        password[0] = "two"
        until(lambda: not instance.is_open)
        assert run(instance, Verb.GET, keys, empty(values)) == (ABSENT,) * 3
    finally:
        assert instance.close(5.0)
        assert refused.close(5.0)
        secured.kill()


def test_databases_are_apart(server: Server) -> None:
    other = type(server.address)("127.0.0.1", server.port, database=3)
    one, two = Instance(server.address), Instance(other)
    try:
        keys, values = make(1, 10)
        assert run(two, Verb.SET, keys, values) == (DONE,)
        assert run(one, Verb.EXISTS, keys) == (ABSENT,)
        assert run(two, Verb.EXISTS, keys) == (DONE,)
    finally:
        assert one.close(5.0)
        assert two.close(5.0)


def test_nobody_there_is_a_miss_at_once_and_close_ends() -> None:
    gone = Instance(Server().address)
    began = time.monotonic()
    assert run(gone, Verb.EXISTS, [b"a", b"b"]) == (FAILED, FAILED)
    assert time.monotonic() - began < 1.5
    assert gone.close(5.0)
    assert run(gone, Verb.EXISTS, [b"a"]) == (FAILED,)


def test_close_under_load_ends_and_settles_everything(server: Server) -> None:
    busy = Instance(server.address)
    keys, values = make(16)
    run(busy, Verb.SET, keys, values)
    asked = [ticket(Verb.GET, keys, empty(values)) for _ in range(20)]
    for each in asked:
        busy.submit(each)
    began = time.monotonic()
    assert busy.close(5.0)
    assert time.monotonic() - began < 5.0
    assert all(each.is_final for each in asked)


def test_an_instance_that_is_not_valkey_is_a_failure(server: Server) -> None:
    connection = Connection.open(
        server.address, credentials=None, context=None, deadline=time.monotonic() + 5
    )
    connection.ping(time.monotonic() + 5)
    connection.close()
    proxy = Proxy(server.port)
    proxy.fault = "garbage"
    wrong = Instance(proxy.address)
    try:
        assert run(wrong, Verb.EXISTS, [b"a"], seconds=1.0)[0] in {FAILED, CANCELLED}
    finally:
        assert wrong.close(5.0)
        proxy.close()


def test_an_instance_that_is_full_takes_nothing_and_gives_what_it_has() -> None:
    full = Server("--maxmemory", "24mb", "--maxmemory-policy", "noeviction").start()
    instance = Instance(full.address)
    try:
        keys, values = make(40)
        stored = run(instance, Verb.SET, keys, values)
        assert {DONE, FAILED} == set(stored)
        there = [index for index, outcome in enumerate(stored) if outcome is DONE]
        read = empty(values)
        assert run(instance, Verb.GET, keys, read) == tuple(
            DONE if outcome is DONE else ABSENT for outcome in stored
        )
        assert all(read[index] == values[index] for index in there)
        # It is no failure of the instance: what it has goes on being read at once.
        refused = 0
        for number in range(20):
            # What a store itself takes for a moment counts as full as well, so some may fit.
            refused += run(instance, Verb.SET, [b"more-%d" % number], values[:1]) == (FAILED,)
            assert run(instance, Verb.EXISTS, [keys[there[0]]]) == (DONE,)
        assert refused >= 10
        assert instance.stats.counts().get("breaker_openings", 0) == 0
        assert instance.stats.counts()["connects"] <= 4
        # And once there is room again it is used.
        assert set(run(instance, Verb.REMOVE, [keys[index] for index in there])) == {DONE}
        assert run(instance, Verb.SET, keys[-1:], values[-1:]) == (DONE,)
    finally:
        assert instance.close(5.0)
        full.kill()


def test_a_fork_that_outlives_a_connection_does_not_keep_it_at_the_server(
    server: Server, instance: Instance
) -> None:
    def connections() -> int:
        listed = server.ask(b"CLIENT", b"LIST", b"TYPE", b"normal")
        return listed.count(b" addr=") - 1  # that of the question

    keys, values = make(8)
    run(instance, Verb.SET, keys, values)
    connect_all(instance)
    assert connections() == 4
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        # The parent's connections are its own all the same, and end when it ends them.
        read = empty(values)
        assert run(instance, Verb.GET, keys, read) == (DONE,) * 8
        assert read == values
        assert instance.close(5.0)
        until(lambda: connections() == 0)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_log_that_cannot_be_written_costs_no_answer(server: Server) -> None:
    full = logging.FileHandler("/dev/full")
    full.setFormatter(logging.Formatter("x" * 10_000 + "%(message)s"))
    logger = logging.getLogger("kvserving_sharded_store")
    logger.addHandler(full)
    keys, values = make(2, 100)
    instance = Instance(server.address)
    try:
        assert run(instance, Verb.SET, keys, values) == (DONE, DONE)
        for _ in range(3):
            server.kill()
            assert run(instance, Verb.GET, keys, empty(values)) == (FAILED, FAILED)
            until(lambda: instance.is_open)
            server.start()
            until(lambda: not instance.is_open)
            assert run(instance, Verb.SET, keys, values) == (DONE, DONE)
    finally:
        logger.removeHandler(full)
        with contextlib.suppress(OSError):
            full.close()
        assert instance.close(5.0)
