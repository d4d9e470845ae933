"""A soak of engine-sim with the sharded store: load, instances that go and come, new engines.

Not part of the suite: `images/engine-sim/tests/run.sh VENV tests/soak_sharded.py`, for as long as
KVSERVING_SOAK_SECONDS says (1,800). Every answer is compared with the first one to its prompt, and
memory of engine and instances must be flat after the first third.
"""

# ruff: noqa: S311  prompts and choices are no secrets

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from harness import CHUNK, prompt
from servers import Valkey, eventually, free_port
from test_engine_sharded import engine, put, shards, stored

SECONDS = float(os.environ.get("KVSERVING_SOAK_SECONDS", "1800"))
LEAST_REQUESTS = int(1500 * SECONDS / 1800)
CLIENTS, POOL, TOKENS = 3, 40, 2000
SHARD_BYTES = 24 << 20
GROWTH = 1.05
"""Memory of the last third against that of the second."""

__all__ = ["engine", "shards"]


class Clients:
    """Clients that ask for known and new prompts, and compare what they are told."""

    def __init__(self, served: Any) -> None:
        self.served = served
        self.answers = 0
        self.wrong: list[str] = []
        self._known: dict[int, str] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(seed,)) for seed in range(CLIENTS)
        ]
        for thread in self._threads:
            thread.start()

    def _ask(self, seed: int) -> None:
        chance = random.Random(seed)
        fresh = 1000 * (seed + 1)
        while not self._stop.is_set():
            number = chance.randrange(POOL)
            if chance.random() < 0.2:
                fresh += 1
                number = fresh
            try:
                if chance.random() < 0.3:
                    self.served._reset()
                if chance.random() < 0.05:
                    stream = self.served.stream(prompt(number, TOKENS), 50)
                    next(stream)
                    stream.close()
                    continue
                text = self.served.text(prompt(number, TOKENS), 8)
            except Exception as error:  # noqa: BLE001 (every error ends the soak, with its text)
                self._complain(f"prompt {number}: {type(error).__name__}: {error}")
                return
            with self._lock:
                self.answers += 1
                if number < POOL and self._known.setdefault(number, text) != text:
                    self.wrong.append(f"prompt {number}: {text!r}, not {self._known[number]!r}")

    def _complain(self, text: str) -> None:
        with self._lock:
            self.wrong.append(text)

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive(), "a client hangs"


def proportional(pids: list[int]) -> int:
    """Bytes of processes, shared memory divided among those that share it."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += 1024 * int(line.split()[1])
    return total


def disturb(chance: random.Random, control: int, shards: list[Valkey]) -> None:
    """What goes on in a cluster meanwhile: an instance is replaced, evicts, or the mode changes."""
    shard = chance.choice(shards)
    match chance.choice(["kill", "evict", "evict", "mode", "mode"]):
        case "kill":
            shard.kill()
            shard.start()
            limit(shard)
        case "evict":
            for key in list(shard.keys())[::7]:
                shard.client.unlink(key)
        case _:
            mode = chance.choice(["Auto", "Async", "Sync", "Bypass"])
            assert put(control, {"mode": mode})["settings"]["mode"] == mode


def limit(shard: Valkey) -> None:
    shard.client.config_set("maxmemory", str(SHARD_BYTES))
    shard.client.config_set("maxmemory-policy", "allkeys-lru")


def test_soak(engine: Callable[..., Any], shards: list[Valkey]) -> None:
    control, chance = free_port(), random.Random(30)
    for shard in shards:
        limit(shard)
    served = engine(control)
    clients = Clients(served)
    began = time.monotonic()
    tick = threading.Event()
    memory: list[tuple[float, int]] = []
    try:
        while (now := time.monotonic() - began) < SECONDS and not clients.wrong:
            disturb(chance, control, shards)
            pids = [served.process.pid, *served.workers()]
            memory.append((now, proportional(pids)))
            tick.wait(min(5.0, SECONDS / 60))
    finally:
        clients.end()
    assert clients.wrong == []
    assert clients.answers >= LEAST_REQUESTS
    thirds = [
        median(size for at, size in memory if third * SECONDS / 3 <= at < (third + 1) * SECONDS / 3)
        for third in range(3)
    ]
    counters = put(control, {"mode": "Auto"})["counters"]
    print(
        f"soak: {clients.answers} answers in {SECONDS:.0f} s, memory of thirds "
        f"{[round(size / 1e6) for size in thirds]} MB, {counters['loaded_chunks']} chunks loaded"
    )
    assert thirds[2] <= GROWTH * thirds[1], "memory grows"
    assert counters["loaded_chunks"] > 0
    eventually(
        "nothing is held", lambda: put(control, {"mode": "Auto"})["counters"]["held_bytes"] == 0
    )
    # And it is still whole: what is stored now is a hit for an engine that was never asked.
    text = prompt(9999, TOKENS)
    cold = served.text(text)
    eventually("stored", lambda: sum(stored(shards)) >= TOKENS // CHUNK)
    served.stop()
    fresh = engine()
    got, grown = fresh.counted(lambda: fresh.text(text))
    assert got == cold
    assert grown["vllm:external_prefix_cache_hits_total"] == TOKENS // CHUNK * CHUNK
