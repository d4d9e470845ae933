"""One rank of the replay: the package's store over buffers of its own, without torch or LMCache.

Started by loads.py. Commands come as JSON lines on standard input, answers go as JSON lines to
standard output, in the order in which they are known.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import mmap
import sys
import threading
import time
from typing import Any

from kvserving_sharded_store.address import Address
from kvserving_sharded_store.grouping import Buffer
from kvserving_sharded_store.lookup import cumulative_lengths
from kvserving_sharded_store.place import Chunk, Place
from kvserving_sharded_store.resp.ticket import Outcome, Verb
from kvserving_sharded_store.resp.work import Options
from kvserving_sharded_store.store import ShardedStore
from kvserving_sharded_store.tier import Tier

CHUNK_TOKENS = 256
SECONDS = 30.0


class Buffers:
    """Host memory for chunks; nothing is cached, so that every load reads the instances."""

    def __init__(self, count: int, size: int) -> None:
        self._lock = threading.Lock()
        self._size = size
        self._held = 0
        self._free = []
        for _ in range(count):
            memory = mmap.mmap(-1, size)
            memory.write(b"\1" * size)
            self._free.append(memoryview(memory))

    @property
    def held_bytes(self) -> int:
        return self._held * self._size

    def get(self, key: Any) -> None:
        """No chunk is ever here."""

    def allocate(self) -> memoryview | None:
        with self._lock:
            self._held += 1 if self._free else 0
            return self._free.pop() if self._free else None

    def view(self, memory: memoryview) -> memoryview:
        return memory

    def keep(self, key: Any, memory: memoryview) -> None:
        """Nothing is kept."""

    def release(self, memory: memoryview) -> None:
        with self._lock:
            self._held -= 1
            self._free.append(memory)


def chunks(prompt: int, count: int) -> list[Chunk]:
    found = []
    for index in range(count):
        digest = hashlib.sha256(f"{prompt}-{index}".encode()).digest()
        found.append(Chunk(index, digest, digest, ""))
    return found


class Rank:
    """A rank that looks up, brings and forgets."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._tier = Tier([Address("127.0.0.1", given.port)], Options(threads=given.threads))
        self._buffers = Buffers(given.buffers, given.size)
        self._store = ShardedStore(
            Place(given.rank, given.world, True, "bench"),
            self._buffers,
            self._tier,
            None,
            buffer=Buffer(1),
            put_bytes=1 << 34,
            chunk_bytes=given.size,
        )
        self._size = given.size
        self._lock = threading.Lock()

    def say(self, **answer: Any) -> None:
        with self._lock:
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()

    def fill(self, name: str, prompt: int, count: int) -> None:
        mine = [self._store.wanted(each) for each in self._store.owned(chunks(prompt, count))]
        value = memoryview(bytes([prompt % 251 + 1]) * self._size)
        done = self._tier.ask(Verb.SET, [w.remote_key for w in mine], [value] * len(mine), SECONDS)
        assert set(done.wait()) <= {Outcome.DONE}, done.outcomes()
        self.say(name=name, tokens=count * CHUNK_TOKENS)

    def probe(self, name: str, prompt: int, count: int) -> None:
        said = lambda tokens: self.say(name=name, tokens=tokens)  # noqa: E731
        self._store.probe(name, chunks(prompt, count), _vector(self._store, count), SECONDS, said)

    def bring(self, name: str, prompt: int, count: int) -> None:
        said = lambda tokens, _read: self.say(name=name, tokens=tokens)  # noqa: E731
        self._store.bring(name, chunks(prompt, count), _vector(self._store, count), SECONDS, said)

    def forget(self, name: str) -> None:
        self._store.forget(name)

    def counts(self, name: str) -> None:
        self.say(name=name, counts=dict(self._store.counts()))


def _vector(store: ShardedStore, count: int) -> tuple[int, ...]:
    return cumulative_lengths(store.place.shard, count * CHUNK_TOKENS, CHUNK_TOKENS)


class Stock:
    """Rank 0 as stock LMCache has it: all chunks from one instance, with LMCache's own client."""

    def __init__(self, given: argparse.Namespace) -> None:
        from rank import native, ours  # noqa: PLC0415 (this folder; the first needs torch)

        self._size = given.size
        self._buffers = Buffers(given.buffers, given.size)
        self._tier = Tier([Address("127.0.0.1", given.port)], Options(threads=given.threads))
        if given.native:
            self._read = native(given.port, given.threads, given.native)
        else:
            self._read = ours(given.port, given.threads)

    def fill(self, name: str, prompt: int, count: int) -> None:
        value = memoryview(bytes([prompt % 251 + 1]) * self._size)
        names = [f"p{prompt}-{index}".encode() for index in range(count)]
        done = self._tier.ask(Verb.SET, names, [value] * count, SECONDS)
        assert set(done.wait()) <= {Outcome.DONE}, done.outcomes()
        self._say(name, count)

    def load(self, name: str, prompt: int, count: int) -> None:
        memories = [self._buffers.allocate() for _ in range(count)]
        views = [memory for memory in memories if memory is not None]
        assert len(views) == count
        self._read([f"p{prompt}-{index}".encode() for index in range(count)], views)
        assert all(view[0] == prompt % 251 + 1 for view in views)
        for view in views:
            self._buffers.release(view)
        self._say(name, count)

    def _say(self, name: str, count: int) -> None:
        sys.stdout.write(json.dumps({"name": name, "tokens": count * CHUNK_TOKENS}) + "\n")
        sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--buffers", type=int, required=True)
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--native", default="")
    given = parser.parse_args()
    served = Stock(given) if given.stock else Rank(given)
    print(json.dumps({"name": "ready", "at": time.monotonic()}), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        getattr(served, command.pop("do"))(**command)


if __name__ == "__main__":
    main()
