"""The sharded store of one rank: puts, looks up, prefetches and loads its chunks.

Knows neither LMCache nor torch: ``engine`` adapts it to an LMCache engine.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kvserving_sharded_store.exchange import Cause, fingerprint
from kvserving_sharded_store.fetch import Fetch, Local, Wanted
from kvserving_sharded_store.grouping import Buffer
from kvserving_sharded_store.keys import chunk_key
from kvserving_sharded_store.load import Group, Loaded, Plan, Sink, load
from kvserving_sharded_store.lookup import async_answer
from kvserving_sharded_store.place import Chunk, Place
from kvserving_sharded_store.puts import Puts
from kvserving_sharded_store.resp.ticket import Outcome, Verb
from kvserving_sharded_store.tier import Ask, Tier

_log = logging.getLogger(__name__)

_PREFETCH_BATCH: Final = 16
"""Chunks of one request to the tier while prefetching."""


class _Refusal:
    """A source that has nothing: how a rank that must not load still takes part."""

    def wait(self, chunk: int) -> Cause:
        return Cause.CLOSED


class ShardedStore:
    """The store of one rank.

    Args:
        place: Where it stands.
        local: The rank's memory.
        tier: The rank's instances; none for local memory alone.
        group: All ranks; none when there is only one.
        buffer: The exchange buffer, alike on all ranks.
        put_bytes: Most bytes held at a time for storing; more is not stored.
        chunk_bytes: Bytes of a chunk.

    Attributes:
        closed: Why nothing is loaded and nothing stored; none while the store is open.
    """

    def __init__(
        self,
        place: Place,
        local: Local,
        tier: Tier | None,
        group: Group | None,
        *,
        buffer: Buffer,
        put_bytes: int,
        chunk_bytes: int,
    ) -> None:
        self.place = place
        self.local = local
        self.tier = tier
        self._group = group
        self._buffer = buffer
        self._chunk_bytes = chunk_bytes
        self.puts = Puts(local, tier, chunk_bytes=chunk_bytes, most_bytes=put_bytes)
        self.closed: str | None = None
        self._lock = threading.Lock()
        self._fetches: dict[str, Fetch] = {}
        self._looked_up: dict[str, Ask] = {}
        self._counts: dict[str, float] = {}

    def counts(self) -> Mapping[str, float]:
        """Counters since the start, see ``docs/sharded-store.md``."""
        with self._lock:
            return dict(self._counts)

    def _count(self, name: str, amount: float = 1) -> None:
        with self._lock:
            self._counts[name] = self._counts.get(name, 0) + amount

    def owned(self, chunks: Sequence[Chunk]) -> list[Chunk]:
        """Those of this rank."""
        return [chunk for chunk in chunks if self.place.shard.owns(chunk.index)]

    def _wanted(self, chunk: Chunk) -> Wanted:
        key = chunk_key(
            epoch=self.place.epoch,
            holder=self.place.holder,
            chunk_hash=chunk.digest,
            realm=chunk.realm,
        )
        return Wanted(chunk.index, chunk.local_key, key)

    def put(self, chunks: Sequence[tuple[Chunk, Any]]) -> None:
        """Store chunks that are in memory on their instances, see ``Puts.put``."""
        if self.closed is None:
            self.puts.put([(self._wanted(chunk), memory) for chunk, memory in chunks])
            return
        for _, memory in chunks:
            self.local.release(memory)

    def present(self, chunks: Sequence[Chunk], seconds: float) -> set[int]:
        """Indexes of this rank's chunks that are in its memory or on its instances; waits."""
        found: set[int] = set()
        missing = []
        for chunk in self.owned(chunks):
            memory = self.local.get(chunk.local_key)
            if memory is None:
                missing.append(self._wanted(chunk))
            else:
                self.local.release(memory)
                found.add(chunk.index)
        if missing and self.tier is not None:
            keys = [wanted.remote_key for wanted in missing]
            outcomes = self.tier.ask(Verb.EXISTS, keys, [], seconds).wait()
            found |= {
                wanted.chunk
                for wanted, outcome in zip(missing, outcomes, strict=True)
                if outcome is Outcome.DONE
            }
        return found

    def prefetch(
        self,
        name: str,
        chunks: Sequence[Chunk],
        vector: Sequence[int],
        seconds: float,
        answer: Callable[[int], None],
    ) -> None:
        """Bring this rank's leading chunks into memory, then answer; does not wait.

        Args:
            name: The request; what is brought is held under it.
            chunks: All chunks of the prompt.
            vector: From ``lookup.cumulative_lengths``.
            seconds: Time allowed for all of it.
            answer: Called once with the tokens this rank can promise: their bytes are here.
        """
        mine = [self._wanted(chunk) for chunk in self.owned(chunks)]
        fresh = [wanted for wanted in mine if not self._cached(wanted)]
        if not fresh or self.tier is None:
            self._bring(name, mine, vector, seconds, answer)
            return
        asked = self.tier.ask(Verb.EXISTS, [w.remote_key for w in fresh], [], seconds)
        with self._lock:
            self._looked_up[name] = asked

        def known(done: Ask) -> None:
            gone = {
                wanted.chunk
                for wanted, outcome in zip(fresh, done.outcomes(), strict=True)
                if outcome is not Outcome.DONE
            }
            with self._lock:
                given_up = self._looked_up.pop(name, None) is not done
            stop = next((i for i, wanted in enumerate(mine) if wanted.chunk in gone), len(mine))
            if given_up:
                answer(async_answer(vector, 0))
            else:
                self._bring(name, mine[:stop], vector, seconds, answer)

        asked.when_final(known)

    def _cached(self, wanted: Wanted) -> bool:
        memory = self.local.get(wanted.local_key)
        if memory is None:
            return False
        self.local.release(memory)
        return True

    def _bring(
        self,
        name: str,
        wanted: Sequence[Wanted],
        vector: Sequence[int],
        seconds: float,
        answer: Callable[[int], None],
    ) -> None:
        batches = [
            wanted[start : start + _PREFETCH_BATCH]
            for start in range(0, len(wanted), _PREFETCH_BATCH)
        ]
        fetch = Fetch(self.local, self.tier, batches, seconds)
        with self._lock:
            before = self._fetches.pop(name, None)
            if self.closed is None:
                self._fetches[name] = fetch
        if before is not None:
            before.release()
        if self.closed is not None:
            fetch.release()
        order = [each.chunk for each in wanted]
        fetch.when_final(lambda done: answer(async_answer(vector, done.leading(order))))

    def load(
        self, name: str | None, chunks: Sequence[Chunk], start: int, sink: Sink, seconds: float
    ) -> Loaded:
        """Load chunks on all ranks, from what was prefetched under a name or else now.

        Args:
            name: The request, none when nothing was prefetched for it.
            chunks: The chunks to load, from ``start`` on without a gap.
            start: Index of the first.
            sink: The engine's KV.
            seconds: Time allowed to fetch.
        """
        if self.closed is not None and self._group is None:
            return Loaded(start, Cause.CLOSED)
        plan = self._plan(chunks, start)
        with self._lock:
            fetch = self._fetches.pop(name, None) if name is not None else None
            closed = self.closed
        if fetch is None and closed is None:
            batches = [
                [self._wanted(chunks[index - start]) for index in plan.shard.owned(g.stop, g.start)]
                for g in plan.groups
            ]
            fetch = Fetch(self.local, self.tier, batches, seconds)
        try:
            loaded = load(plan, fetch or _Refusal(), sink, self._group)
        finally:
            if fetch is not None:
                fetch.release()
        self._count("loads")
        self._count("loaded_chunks", loaded.stop - start)
        if loaded.cause is not Cause.NONE:
            self._count(f"short_{loaded.cause.name.lower()}")
        for phase, spent in loaded.seconds.items():
            self._count(f"{phase}_seconds", spent)
        return loaded

    def _plan(self, chunks: Sequence[Chunk], start: int) -> Plan:
        total = start + len(chunks)
        last = chunks[-1].digest + chunks[-1].realm.encode() if chunks else b""
        buffer = (self._buffer.least, self._buffer.most)
        return Plan(
            start=start,
            total=total,
            shard=self.place.shard,
            buffer=self._buffer,
            fingerprint=fingerprint(
                epoch=self.place.epoch,
                start=start,
                total=total,
                last=last,
                layout=(self.place.world, self._chunk_bytes, *buffer),
            ),
        )

    def forget(self, name: str) -> None:
        """A request ended, was aborted, or its lookup timed out: give everything back."""
        with self._lock:
            fetch = self._fetches.pop(name, None)
            asked = self._looked_up.pop(name, None)
        if asked is not None:
            asked.cancel()
        if fetch is not None:
            fetch.release()

    def close(self) -> bool:
        """Give everything back and end all threads; whether that took less than its bound."""
        with self._lock:
            self.closed = "Shutdown"
            names = [*self._fetches, *self._looked_up]
        for name in names:
            self.forget(name)
        return self.tier is None or self.tier.close()
