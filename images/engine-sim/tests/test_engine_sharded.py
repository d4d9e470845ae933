"""engine-sim with the sharded store: W ranks, W instances, each rank its share of every prompt."""

# ruff: noqa: S311  prompts and choices are no secrets

from __future__ import annotations

import json
import random
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import CHUNK, prompt
from servers import Valkey, eventually, free_port

WORLD = 4
SHARDED = {"kv_connector": "ShardedStoreConnector", "kv_role": "kv_both"}
HIT = 1000 // CHUNK * CHUNK


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Valkey]]:
    """One instance per rank, on ports that differ in their last digit."""
    while True:
        base = free_port() // 10 * 10
        try:
            for rank in range(WORLD):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", base + rank))
        except OSError:
            continue
        break
    servers = []
    for rank in range(WORLD):
        server = Valkey(tmp_path_factory.mktemp(f"shard{rank}"), port=base + rank)
        servers.append(server)
    yield servers
    for server in servers:
        server.kill()


def environment(control: int = 0, **settings: Any) -> dict[str, str]:
    extra = {"save_chunk_meta": False, "kvserving.control_port": control}
    extra |= {f"kvserving.{name}": value for name, value in settings.items()}
    return {"LMCACHE_EXTRA_CONFIG": json.dumps(extra), "LMCACHE_LOOKUP_TIMEOUT_MS": "3000"}


@pytest.fixture
def engine(start: Callable[..., Any], shards: list[Valkey]) -> Callable[..., Any]:
    def make(control: int = 0, *, local: str = "0.1", **settings: Any) -> Any:
        url = f"resp://127.0.0.1:{shards[0].port // 10}{{ordinal}}"
        flags = ("--prefill-context-parallel-size", str(WORLD))
        given = environment(control, **settings) | {"LMCACHE_MAX_LOCAL_CPU_SIZE": local}
        return start(*flags, transfer=SHARDED, tier=url, environment=given).ready()

    return make


def stored(shards: list[Valkey]) -> list[int]:
    return [len(shard.keys()) for shard in shards]


def flush(shards: list[Valkey]) -> None:
    for shard in shards:
        shard.client.flushall()


def test_every_rank_stores_its_share_and_a_fresh_engine_is_served_by_all(
    engine: Callable[..., Any], shards: list[Valkey]
) -> None:
    flush(shards)
    text = prompt(1)
    first = engine()
    cold = first.text(text)
    chunks = HIT // CHUNK
    eventually("all chunks are stored", lambda: sum(stored(shards)) == chunks)
    assert all(abs(count - chunks / WORLD) <= 1 for count in stored(shards))
    first.stop()
    fresh = engine()
    got, grown = fresh.counted(lambda: fresh.text(text))
    assert got == cold
    assert grown["vllm:external_prefix_cache_hits_total"] == HIT
    fresh.stop()
    # The bytes are really used: with one value spoiled the answer is another.
    victim = shards[2]
    key = sorted(victim.keys())[0]
    value = bytearray(victim.client.get(key))
    value[len(value) // 2] ^= 0xFF
    victim.client.set(key, bytes(value))
    spoiled = engine()
    assert spoiled.text(text) != cold


def prefixes(texts: list[str]) -> Iterator[str]:
    """What names each whole chunk of these: all up to its end."""
    for text in texts:
        yield from (text[:end] for end in range(CHUNK, len(text) + 1, CHUNK))


def test_needles_are_found_cold_locally_after_a_restart_and_cold_again(
    engine: Callable[..., Any], shards: list[Valkey]
) -> None:
    flush(shards)
    chance = random.Random(65)
    hay = prompt(65, 2000)
    cases = []
    for _ in range(6):
        code, depth = f"{chance.randrange(10**6):06d}", chance.randrange(len(hay))
        cases.append(hay[:depth] + code + hay[depth:])
    first = engine()
    cold = [first.text(text) for text in cases]
    assert len(set(cold)) == len(cases), "the needle decides the answer"
    whole = sum(len(text) // CHUNK * CHUNK for text in cases)

    def hit(served: Any) -> list[str]:
        """The answers without the engine's own cache: every chunk is a hit of the store."""

        def ask(text: str) -> str:
            served.forget()
            return str(served.text(text))

        said, grown = served.counted(lambda: [ask(text) for text in cases])
        assert grown["vllm:external_prefix_cache_hits_total"] == whole
        return list(said)

    local = hit(first)
    eventually("stored", lambda: sum(stored(shards)) == len({*prefixes(cases)}))
    first.stop()
    second = engine()
    remote = hit(second)
    second.stop()
    flush(shards)
    third = engine()
    again = [third.text(text) for text in cases]
    right = sum(
        found == want
        for way in (cold, local, remote, again)
        for found, want in zip(way, cold, strict=True)
    )
    assert right == 24


def test_an_instance_that_dies_costs_hits_and_never_an_answer(
    engine: Callable[..., Any], shards: list[Valkey]
) -> None:
    flush(shards)
    text = prompt(3)
    served = engine()
    cold = served.text(text)
    eventually("stored", lambda: sum(stored(shards)) == HIT // CHUNK)
    served.stop()
    fresh = engine()
    shards[1].kill()
    try:
        got, grown = fresh.counted(lambda: fresh.text(text))
        assert got == cold
        assert grown["vllm:external_prefix_cache_hits_total"] <= CHUNK
    finally:
        shards[1].start()
    other = prompt(4)
    want = fresh.text(other)

    def hit_again() -> bool:
        fresh.forget()
        got, grown = fresh.counted(lambda: fresh.text(other))
        assert got == want
        return bool(grown["vllm:external_prefix_cache_hits_total"] == HIT)

    eventually("stores and hits again", hit_again, 20)


def put(port: int, settings: dict[str, Any]) -> dict[str, Any]:
    base = f"http://127.0.0.1:{port}/v1"
    with urllib.request.urlopen(f"{base}/state", timeout=10) as page:  # noqa: S310
        state: dict[str, Any] = json.load(page)
    request = urllib.request.Request(  # noqa: S310
        f"{base}/settings",
        json.dumps(settings).encode(),
        {"content-type": "application/json", "If-Match": state["startId"]},
        method="PUT",
    )
    with urllib.request.urlopen(request, timeout=10) as page:  # noqa: S310
        after: dict[str, Any] = json.load(page)
    return after


def test_modes_are_switched_under_load_without_a_wrong_or_missing_answer(
    engine: Callable[..., Any], shards: list[Valkey]
) -> None:
    flush(shards)
    control = free_port()
    served = engine(control)
    texts = [prompt(100 + number) for number in range(6)]
    want = [served.text(text, 4) for text in texts]
    eventually("stored", lambda: sum(stored(shards)) == len(texts) * HIT // CHUNK)
    stop, answers = threading.Event(), [0]
    wrong: list[str] = []

    def load(seed: int) -> None:
        chance = random.Random(seed)
        while not stop.is_set():
            number = chance.randrange(len(texts))
            served._reset()
            if served.text(texts[number], 4) != want[number]:
                wrong.append(f"prompt {number}")
            answers[0] += 1

    threads = [threading.Thread(target=load, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    chance = random.Random(9)
    modes = ("Auto", "Async", "Sync", "Bypass")
    for _ in range(1000):
        mode = chance.choice(modes)
        assert put(control, {"mode": mode})["settings"]["mode"] == mode
    stop.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert wrong == []
    counters = put(control, {"mode": "Auto"})["counters"]
    assert answers[0] >= 20
    assert counters.get("lookups_late", 0) == 0
    assert counters.get("short_mismatch", 0) == 0, "ranks took a step in different modes"
    taken = {name for name in counters if name.startswith("decision_")}
    assert {"decision_bypass_modeset", "decision_async_modeset", "decision_sync_modeset"} <= taken
    eventually(
        "nothing is held",
        lambda: put(control, {"mode": "Auto"})["counters"]["held_bytes"] == 0,
    )


def test_requests_that_leave_early_hold_nothing(
    engine: Callable[..., Any], shards: list[Valkey], tmp_path: Path
) -> None:
    control = free_port()
    served = engine(control)
    text = prompt(7, 3000)
    served.text(text, 4)
    for number in range(40):
        stream = served.stream(text + str(number), 200)
        next(stream)
        stream.close()
    eventually(
        "nothing is held",
        lambda: put(control, {"mode": "Auto"})["counters"]["held_bytes"] == 0,
        30,
    )
    assert served.text(text, 4)
