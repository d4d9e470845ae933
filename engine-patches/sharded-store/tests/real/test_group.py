"""W real ranks with real LMCache engines: what they store, look up, load, and agree on."""

from __future__ import annotations

import os
import random
import time
from collections import Counter

import pytest

from .engines import CHUNK, Engine
from .group import CHUNK_BYTES, COUNT, options, whole
from .results import record
from .servers import Server, until

ROUNDS = int(os.environ.get("KVSERVING_TEST_ROUNDS", "17"))
"""Of faults, for each W; `make soak` has 500."""
ABORTS = int(os.environ.get("KVSERVING_TEST_ABORTS", "200"))
"""Aborts and timeouts; `make soak` has 10,000."""


@pytest.mark.parametrize("world", [2, 4, 8])
def test_each_rank_stores_its_share_and_fresh_processes_load_all_of_it(
    world: int, servers: list[Server]
) -> None:
    engine = Engine(world, **options(servers))
    try:
        engine.all("store", 1, COUNT)
        stored = engine.all("stored")
        assert sum(stored) == 20 * CHUNK_BYTES
        assert all(abs(share - 20 * CHUNK_BYTES / world) <= CHUNK_BYTES for share in stored)
        assert min(engine.all("lookup", 1, COUNT)) == whole(COUNT)
    finally:
        engine.kill()
    fresh = Engine(world, **options(servers))
    try:
        assert min(fresh.all("prefetch", "a", 1, COUNT)) == whole(COUNT)
        assert fresh.prefix(fresh.all("retrieve", "a", 1, COUNT)) == whole(COUNT)
        # From memory now, with the first chunks computed already, and a prompt nobody stored.
        assert fresh.prefix(fresh.all("retrieve", None, 1, COUNT, 3 * CHUNK)) == 17 * CHUNK
        assert fresh.prefix(fresh.all("retrieve", None, 2, COUNT)) == 0
        assert fresh.all("held") == [0] * world
        assert max(fresh.all("close")) < 5.0
    finally:
        fresh.kill()


@pytest.mark.parametrize("world", [2, 4, 8])
def test_random_failures_are_an_agreed_shorter_prefix_and_never_a_hang(
    world: int, servers: list[Server]
) -> None:
    chance = random.Random(6)
    engine = Engine(world, **options(servers))
    counted: Counter[str] = Counter()
    slowest: dict[str, float] = {}
    try:
        engine.all("store", 1, COUNT)
        engine.all("stored")
        kinds = ["none", "evict", "length", "refused", "dead", "stage", "write", "mismatch", "slow"]
        for number in range(ROUNDS):
            kind = chance.choice(kinds)
            victim, chunk = chance.randrange(world), chance.randrange(20)
            engine.all("forget_local")
            key = engine.one(0, "key", 1, chunk)
            expected = 20
            if kind == "evict":
                assert min(engine.all("lookup", 1, COUNT)) == whole(COUNT)
                servers[chunk % world].ask(b"DEL", key)
                expected = chunk
            elif kind == "refused":
                servers[chunk % world].ask(b"DEL", key)
                servers[chunk % world].ask(b"LPUSH", key, b"no value")
                expected = chunk
            elif kind == "length":
                servers[chunk % world].ask(b"SET", key, b"short")
                expected = chunk
            elif kind == "dead":
                servers[victim].kill()
                expected = victim
            elif kind in {"stage", "write", "mismatch"}:
                engine.one(victim, "fault", kind)
                expected = {"stage": victim, "write": 0, "mismatch": 0}[kind]
            elif kind == "slow":
                engine.one(victim, "fault", "slow")
            began = time.monotonic()
            found = engine.prefix(engine.all("retrieve", None, 1, COUNT))
            seconds = time.monotonic() - began
            assert seconds < 10.0, kind
            counted[kind] += 1
            slowest[kind] = max(slowest.get(kind, 0.0), round(seconds, 3))
            assert found == expected * CHUNK, (number, kind, victim, chunk)
            # A GET that was broken off ends a moment later; until then it may write.
            until(lambda: engine.all("held") == [0] * world, 2.0)
            if kind == "dead":
                servers[victim].start()
            if kind in {"evict", "length", "refused", "dead"}:
                if kind in {"length", "refused"}:
                    servers[chunk % world].ask(b"DEL", key)
                _heal(engine)
        figures = {"rounds": ROUNDS, "by_fault": counted, "slowest_seconds": slowest}
        record("soak-store", f"faults, {world} ranks", figures)
    finally:
        engine.kill()


def _heal(engine: Engine) -> None:
    """Store again until every chunk is there: a breaker may still be open."""

    def healed() -> bool:
        engine.all("forget_local")
        engine.all("store", 1, COUNT)
        engine.all("stored")
        engine.all("forget_local")
        return min(engine.all("lookup", 1, COUNT)) == whole(COUNT)

    until(healed, 30.0)


@pytest.mark.parametrize("world", [2])
def test_ranks_with_heads_of_their_own_keep_them_apart_and_agree(
    world: int, servers: list[Server]
) -> None:
    engine = Engine(world, mla=False, **options(servers))
    try:
        engine.all("store", 1, COUNT)
        assert engine.all("stored") == [20 * 2 * CHUNK_BYTES] * world
        engine.all("forget_local")
        assert engine.prefix(engine.all("retrieve", None, 1, COUNT)) == whole(COUNT)
        engine.all("forget_local")
        servers[1].ask(b"DEL", engine.one(1, "key", 1, 7))
        assert engine.prefix(engine.all("retrieve", None, 1, COUNT)) == 7 * CHUNK
    finally:
        engine.kill()


@pytest.mark.parametrize("world", [2])
def test_statistics_of_chunks_that_are_gone_do_not_pile_up(
    world: int, servers: list[Server]
) -> None:
    engine = Engine(world, remembered=15, **options(servers))
    try:
        for prompt in range(1, 9):
            engine.all("store", prompt, COUNT)
            engine.all("stored")
        assert all(0 < each <= 15 for each in engine.all("remembered"))
        assert engine.prefix(engine.all("retrieve", None, 1, COUNT)) == whole(COUNT)
    finally:
        engine.kill()


@pytest.mark.parametrize("world", [2])
def test_what_was_brought_for_another_prompt_of_the_same_name_is_not_loaded(
    world: int, servers: list[Server]
) -> None:
    engine = Engine(world, **options(servers))
    try:
        for prompt in (1, 2):
            engine.all("store", prompt, COUNT)
        engine.all("stored")
        engine.all("forget_local")
        assert min(engine.all("prefetch", "a", 2, COUNT)) == whole(COUNT)
        # `prefix` compares the KV with that of the prompt that was asked for.
        assert engine.prefix(engine.all("retrieve", "a", 1, COUNT)) == whole(COUNT)
        assert engine.all("held") == [0] * world
    finally:
        engine.kill()


@pytest.mark.parametrize("world", [2])
def test_aborts_timeouts_and_shutdown_give_all_memory_back_without_traffic(
    world: int, servers: list[Server]
) -> None:
    chance = random.Random(7)
    engine = Engine(world, **options(servers))
    try:
        engine.all("store", 1, COUNT)
        engine.all("stored")
        for number in range(ABORTS):
            engine.all("forget_local")
            way = chance.choice(["at once", "at once", "when here", "late"])
            # A lookup that runs out of time gives up somewhere between asking and the last byte.
            allowed = chance.choice([0.0, 0.0005, 0.002, 0.005]) if way == "late" else None
            engine.all("abort", f"r{number}", 1, COUNT, wait=way != "at once", allowed=allowed)
            if number % 50 == 0:
                # Nothing else is asked of the engine that could have cleaned up after it.
                until(lambda: engine.all("held") == [0] * world)
        until(lambda: engine.all("held") == [0] * world)
        engine.all("forget_local")
        # The instances were well all the time, and nothing else was concluded.
        assert min(engine.all("prefetch", "b", 1, COUNT)) == whole(COUNT)
        assert [each.get("breaker_openings", 0) for each in engine.all("counts")] == [0] * world
        figures = {"aborts_and_timeouts": ABORTS, "held_bytes_after": 0, "breaker_openings": 0}
        record("soak-store", f"aborts, {world} ranks", figures)
        assert max(engine.all("close")) < 5.0
    finally:
        engine.kill()
