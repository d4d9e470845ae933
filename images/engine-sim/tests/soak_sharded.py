"""A soak of engine-sim with the sharded store: load, instances that go and come, new engines.

Not part of the suite: `images/engine-sim/tests/run.sh VENV tests/soak_sharded.py`, for as long as
KVSERVING_SOAK_SECONDS says (1,800). Every answer is compared with the first one to its prompt, and
no process may grow once its caches are full. What was seen is written to KVSERVING_TEST_RESULTS.
"""

# ruff: noqa: S311  prompts and choices are no secrets

from __future__ import annotations

import json
import os
import platform
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from harness import CHUNK, prompt
from memory import growth, own, summary
from servers import Valkey, eventually, free_port
from test_engine_sharded import engine, put, shards, stored

SECONDS = float(os.environ.get("KVSERVING_SOAK_SECONDS", "1800"))
LEAST_REQUESTS = int(1500 * SECONDS / 1800)
CLIENTS, POOL, TOKENS = 3, 40, 2000
PACE = CLIENTS * SECONDS / LEAST_REQUESTS * 0.8
"""Seconds between two requests of a client: slow enough to leave other work its processors."""
SHARD_BYTES = 24 << 20
LOCAL_GB = "0.01"
"""Of each rank: full, like the instances, before the first third is over."""
GROWTH = 0.01
"""Share by which a process may grow in the last two thirds."""

__all__ = ["engine", "shards"]


class Clients:
    """Clients that ask for known and new prompts, and compare what they are told."""

    def __init__(self, served: Any) -> None:
        self.served = served
        self.answers = 0
        self.left = 0
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
        due = time.monotonic() + PACE * seed / CLIENTS
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            due += PACE
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
                    with self._lock:
                        self.left += 1
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


def disturb(chance: random.Random, control: int, shards: list[Valkey]) -> str:
    """What goes on in a cluster meanwhile: an instance is replaced, evicts, or the mode changes."""
    shard = chance.choice(shards)
    kind = chance.choice(["kill", "evict", "evict", "mode", "mode"])
    match kind:
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
    return kind


def record(figures: dict[str, Any]) -> None:
    """Write the figures with the machine and the versions they were had with."""
    folder = os.environ.get("KVSERVING_TEST_RESULTS")
    if not folder:
        return
    found = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"{os.cpu_count()} CPUs, {platform.machine()}, shared with other work",
        "versions": {
            "python": platform.python_version(),
            "lmcache": version("lmcache"),
            "torch": version("torch"),
        },
        **figures,
    }
    Path(folder, "soak-engine-sim.json").write_text(json.dumps(found, indent=1) + "\n")


def limit(shard: Valkey) -> None:
    shard.client.config_set("maxmemory", str(SHARD_BYTES))
    shard.client.config_set("maxmemory-policy", "allkeys-lru")


def test_soak(engine: Callable[..., Any], shards: list[Valkey]) -> None:
    control, chance = free_port(), random.Random(30)
    for shard in shards:
        limit(shard)
    served = engine(control, local=LOCAL_GB)
    clients = Clients(served)
    began = time.monotonic()
    tick = threading.Event()
    disturbed: Counter[str] = Counter()
    memory: dict[str, list[tuple[float, int]]] = defaultdict(list)
    processes = {"front": served.process.pid}
    processes |= {f"rank {rank}": pid for rank, pid in enumerate(served.workers())}
    try:
        while (now := time.monotonic() - began) < SECONDS and not clients.wrong:
            disturbed[disturb(chance, control, shards)] += 1
            for name, pid in processes.items():
                memory[name].append((now, own(pid)))
            tick.wait(min(5.0, SECONDS / 60))
    finally:
        clients.end()
    counters = put(control, {"mode": "Auto"})["counters"]
    found = summary(memory, SECONDS)
    told = ("loads", "loaded_chunks", "lookups", "lookups_late", "breaker_openings", "connects")
    figures = {
        "seconds": SECONDS,
        "answers": clients.answers,
        "left_early": clients.left,
        "wrong": clients.wrong,
        "disturbed": dict(disturbed),
        "memory": found,
        "counters": {name: counters.get(name, 0) for name in told},
    }
    record(figures)
    print("soak:", json.dumps(figures))
    assert clients.wrong == []
    assert clients.answers >= LEAST_REQUESTS
    assert counters["loaded_chunks"] > 0
    for name, samples in memory.items():
        assert growth(samples, SECONDS) < GROWTH, f"memory of {name} grows: {found[name]}"
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
