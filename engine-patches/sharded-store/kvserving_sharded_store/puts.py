"""Stores chunks on their instances in the background, bounded in memory, without sending twice."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final

from kvserving_sharded_store.fetch import Local, Wanted
from kvserving_sharded_store.resp.ticket import Outcome, Verb
from kvserving_sharded_store.tier import Ask, Tier

_SECONDS: Final = 30.0
"""Time allowed for storing what a step has computed; nobody waits for it."""


class Puts:
    """What is on its way to the instances.

    Args:
        local: The rank's memory.
        tier: The rank's instances; none to store nothing.
        chunk_bytes: Bytes of a chunk.
        most_bytes: Most bytes held at a time for storing; more is not stored.
    """

    def __init__(
        self, local: Local, tier: Tier | None, *, chunk_bytes: int, most_bytes: int
    ) -> None:
        self._local = local
        self._tier = tier
        self._chunk_bytes = chunk_bytes
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._under_way = 0
        self._skipped = 0

    @property
    def skipped(self) -> int:
        """Chunks that were not stored because too much was under way."""
        return self._skipped

    @property
    def under_way(self) -> int:
        """Bytes held for storing."""
        return self._under_way

    def put(self, chunks: Sequence[tuple[Wanted, Any]]) -> None:
        """Store chunks that the instances do not have.

        Takes over the caller's holds on the memories, and does not wait. An instance that lost its
        content gets a chunk again when it is computed again: a hit in local memory stores nothing.
        """
        size = len(chunks) * self._chunk_bytes
        with self._lock:
            room = self._tier is not None and self._under_way + size <= self._most_bytes
            if room:
                self._under_way += size
            elif self._tier is not None:
                self._skipped += len(chunks)
        if self._tier is None or not room:
            for _, memory in chunks:
                self._local.release(memory)
            return
        asked = self._tier.ask(Verb.EXISTS, [w.remote_key for w, _ in chunks], [], _SECONDS)
        asked.when_final(lambda done: self._known(done, chunks))

    def _known(self, asked: Ask, chunks: Sequence[tuple[Wanted, Any]]) -> None:
        missing = []
        for pair, outcome in zip(chunks, asked.outcomes(), strict=True):
            if outcome is Outcome.ABSENT:
                missing.append(pair)
            else:
                self._done(pair[1])
        if not missing or self._tier is None:
            return
        stored = self._tier.ask(
            Verb.SET,
            [wanted.remote_key for wanted, _ in missing],
            [self._local.view(memory) for _, memory in missing],
            _SECONDS,
        )
        stored.when_final(lambda _stored: self._all_done(missing))

    def _all_done(self, chunks: Sequence[tuple[Wanted, Any]]) -> None:
        for _, memory in chunks:
            self._done(memory)

    def _done(self, memory: Any) -> None:
        with self._lock:
            self._under_way -= self._chunk_bytes
        self._local.release(memory)
