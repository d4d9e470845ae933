"""The sharded store of one rank: puts, looks up, prefetches and loads its chunks.

Knows neither LMCache nor torch: ``engine`` adapts it to an LMCache engine.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kvserving_sharded_store.exchange import Cause, fingerprint
from kvserving_sharded_store.fetch import Fetch, Local, Wanted
from kvserving_sharded_store.grouping import Buffer
from kvserving_sharded_store.keys import chunk_key
from kvserving_sharded_store.load import Group, Loaded, Plan, Sink, load
from kvserving_sharded_store.lookup import async_answer
from kvserving_sharded_store.place import Chunk, Place
from kvserving_sharded_store.prefetch import Prefetches
from kvserving_sharded_store.puts import Puts
from kvserving_sharded_store.resp.ticket import Outcome, Verb
from kvserving_sharded_store.tier import Tier

_log = logging.getLogger(__name__)

_RECENT: Final = 64
"""Chunks that a probe may read again."""


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
        self.prefetches = Prefetches(local, tier, self.count)
        self._counts: dict[str, float] = {}
        self._recent: deque[Wanted] = deque(maxlen=_RECENT)

    def counts(self) -> Mapping[str, float]:
        """Counters since the start, with those of the instances, see ``docs/sharded-store.md``."""
        with self._lock:
            counts = dict(self._counts)
        counts["held_bytes"] = float(self.local.held_bytes)
        counts["put_skipped"] = float(self.puts.skipped)
        if self.tier is not None:
            for name, value in self.tier.counts().items():
                counts[name] = counts.get(name, 0) + value
        return counts

    def count(self, name: str, amount: float = 1) -> None:
        """Count something."""
        with self._lock:
            self._counts[name] = self._counts.get(name, 0) + amount

    def owned(self, chunks: Sequence[Chunk]) -> list[Chunk]:
        """Those of this rank."""
        return [chunk for chunk in chunks if self.place.shard.owns(chunk.index)]

    def _mine(self, chunks: Sequence[Chunk]) -> list[Wanted]:
        return [self.wanted(chunk) for chunk in self.owned(chunks)]

    def wanted(self, chunk: Chunk) -> Wanted:
        """A chunk with its names."""
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
            pairs = [(self.wanted(chunk), memory) for chunk, memory in chunks]
            self._recent.extend(wanted for wanted, _ in pairs)
            self.puts.put(pairs)
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
                missing.append(self.wanted(chunk))
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
        mine = self._mine(chunks)

        def here(count: int, _read: int) -> None:
            answer(async_answer(vector, count))

        def known(count: int | None) -> None:
            if count is None:
                here(0, 0)
            else:
                self.prefetches.bring(name, mine[:count], seconds, here)

        self.prefetches.probe(name, mine, seconds, known)

    def probe(
        self,
        name: str,
        chunks: Sequence[Chunk],
        vector: Sequence[int],
        seconds: float,
        answer: Callable[[int], None],
    ) -> None:
        """Like ``prefetch``, but only say what could be brought; nothing when dropped meanwhile."""
        mine = self._mine(chunks)

        def known(count: int | None) -> None:
            if count is not None:
                answer(async_answer(vector, count))

        self.prefetches.probe(name, mine, seconds, known)

    def bring(
        self,
        name: str,
        chunks: Sequence[Chunk],
        vector: Sequence[int],
        seconds: float,
        answer: Callable[[int, int], None],
    ) -> None:
        """The second half of ``prefetch``: bring what a probe found on all ranks.

        ``answer`` is also told the bytes that came from this rank's instances.
        """
        mine = self._mine(chunks)
        self._recent.extend(mine)

        def here(count: int, read: int) -> None:
            answer(async_answer(vector, count), read)

        self.prefetches.bring(name, mine, seconds, here)

    def sample(self, count: int, seconds: float) -> None:
        """Read so many of this rank's latest chunks again and throw them away: a measurement."""
        recent = list(self._recent)[-count:]
        if self.tier is None or self.closed is not None:
            return
        pairs = [(w, memory) for w in recent if (memory := self.local.allocate()) is not None]
        asked = self.tier.ask(
            Verb.GET,
            [wanted.remote_key for wanted, _ in pairs],
            [self.local.view(memory) for _, memory in pairs],
            seconds,
        )
        self.count("probed_chunks", len(pairs))

        def done(_asked: object) -> None:
            for _, memory in pairs:
                self.local.release(memory)

        asked.when_final(done)

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
        batches = [
            [self.wanted(chunks[index - start]) for index in plan.shard.owned(g.stop, g.start)]
            for g in plan.groups
        ]
        fetch = None if name is None else self.prefetches.take(name, batches)
        if fetch is None and self.closed is None:
            fetch = self._begin(batches, seconds)
        try:
            loaded = load(plan, fetch or _Refusal(), sink, self._group)
        finally:
            if fetch is not None:
                fetch.release()
        self.count("loads")
        self.count("loaded_chunks", loaded.stop - start)
        if loaded.cause is not Cause.NONE:
            self.count(f"short_{loaded.cause.name.lower()}")
        for phase, spent in loaded.seconds.items():
            self.count(f"{phase}_seconds", spent)
        return loaded

    def _begin(self, batches: Sequence[Sequence[Wanted]], seconds: float) -> Fetch | None:
        try:
            return Fetch(self.local, self.tier, batches, seconds)
        except Exception:  # noqa: BLE001 (the other ranks wait in a collective, and must hear of it)
            _log.exception("a load could not be begun")
            return None

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
        self.prefetches.forget(name)

    def close(self) -> bool:
        """Give everything back and end all threads; whether that took less than its bound."""
        self.closed = "Shutdown"
        self.prefetches.close()
        return self.tier is None or self.tier.close()
