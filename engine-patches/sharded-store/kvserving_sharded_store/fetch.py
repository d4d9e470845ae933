"""Brings a rank's own chunks into its host memory, and holds them until they are used.

Where a chunk is: in the rank's local cache, or on one of its instances. Memory of a chunk is given
back exactly once: when it is released, or, while an instance may still write into it, when that is
over.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kvserving_sharded_store.exchange import Cause
from kvserving_sharded_store.resp.ticket import Outcome, Verb
from kvserving_sharded_store.tier import Ask, Tier

_log = logging.getLogger(__name__)

_CAUSES = {
    Outcome.ABSENT: Cause.ABSENT,
    Outcome.FAILED: Cause.FAILED,
    Outcome.CANCELLED: Cause.FAILED,
}


class Local(Protocol):
    """The rank's cache in host memory, and the memory itself. Safe to use from several threads."""

    @property
    def held_bytes(self) -> int:
        """Bytes held at present."""

    def get(self, key: Any) -> Any | None:
        """The memory of a cached chunk, held for the caller."""

    def allocate(self) -> Any | None:
        """Memory for one chunk, held for the caller; none when there is none."""

    def view(self, memory: Any) -> memoryview:
        """The bytes of a chunk."""

    def keep(self, key: Any, memory: Any) -> None:
        """Cache a chunk; the caller's hold is untouched."""

    def release(self, memory: Any) -> None:
        """End one hold."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A chunk of this rank's.

    Attributes:
        chunk: Its absolute index.
        local_key: Its name in the local cache.
        remote_key: Its name on an instance.
    """

    chunk: int
    local_key: Any
    remote_key: bytes


class Fetch:
    """A ``Source``: chunks on their way into this rank's memory.

    Args:
        local: The local cache.
        tier: The rank's instances; none to use the local cache alone.
        batches: What to fetch; each batch is one request to the tier, in order.
        seconds: Time allowed.

    Attributes:
        read: Bytes that have come from instances.
    """

    def __init__(
        self, local: Local, tier: Tier | None, batches: Sequence[Sequence[Wanted]], seconds: float
    ) -> None:
        self._local = local
        self._lock = threading.Lock()
        self._held: dict[int, Any] = {}
        self._causes: dict[int, Cause] = {}
        self._asks: dict[int, Ask] = {}
        self._names = {each.chunk: each.remote_key for batch in batches for each in batch}
        self._released = False
        self._under_way = 1
        self._callbacks: list[Callable[[Fetch], None]] = []
        self.read = 0
        try:
            for batch in batches:
                self._begin(tier, batch, seconds)
        except BaseException:
            # Nobody will ever have this one to release it.
            self.release()
            raise
        self._one_less()

    def is_of(self, chunks: Sequence[Wanted]) -> bool:
        """Whether what was fetched for these chunks, as far as it was, is these chunks.

        A name can be used again, for another prompt, while the load of the first is under way.
        """
        return all(
            self._names.get(each.chunk, each.remote_key) == each.remote_key for each in chunks
        )

    def _begin(self, tier: Tier | None, batch: Sequence[Wanted], seconds: float) -> None:
        missing: list[tuple[Wanted, Any]] = []
        for wanted in batch:
            memory = self._local.get(wanted.local_key)
            if memory is not None:
                self._held[wanted.chunk] = memory
            elif tier is None:
                self._causes[wanted.chunk] = Cause.ABSENT
            elif (fresh := self._local.allocate()) is None:
                self._causes[wanted.chunk] = Cause.MEMORY
            else:
                missing.append((wanted, fresh))
        if not missing or tier is None:
            return
        try:
            ask = tier.ask(
                Verb.GET,
                [wanted.remote_key for wanted, _ in missing],
                [self._local.view(memory) for _, memory in missing],
                seconds,
            )
        except BaseException:
            for _, memory in missing:
                self._local.release(memory)
            raise
        self._under_way += 1
        for wanted, _ in missing:
            self._asks[wanted.chunk] = ask
        ask.when_final(lambda done: self._arrived(done, missing))

    def _arrived(self, ask: Ask, missing: Sequence[tuple[Wanted, Any]]) -> None:
        for (wanted, memory), outcome in zip(missing, ask.outcomes(), strict=True):
            if outcome is Outcome.DONE:
                self._keep(wanted, memory)
            with self._lock:
                useful = outcome is Outcome.DONE and not self._released
                if useful:
                    self._held[wanted.chunk] = memory
                    self.read += self._local.view(memory).nbytes
                else:
                    self._causes[wanted.chunk] = _CAUSES.get(outcome, Cause.CLOSED)
            if not useful:
                self._local.release(memory)
        self._one_less()

    def _keep(self, wanted: Wanted, memory: Any) -> None:
        """Cache what has come. A cache that does not want it costs the next request its hit."""
        try:
            self._local.keep(wanted.local_key, memory)
        except Exception:  # noqa: BLE001 (whoever waits for the chunk must hear that it is here)
            _log.exception("a chunk was not cached")

    def _one_less(self) -> None:
        with self._lock:
            self._under_way -= 1
            if self._under_way:
                return
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def when_final(self, callback: Callable[[Fetch], None]) -> None:
        """Call when nothing is on its way any more; must neither wait nor raise."""
        with self._lock:
            if self._under_way:
                self._callbacks.append(callback)
                return
        callback(self)

    def wait(self, chunk: int) -> Any | Cause:
        """See ``load.Source``; waits no longer than the time allowed for the fetch."""
        ask = self._asks.get(chunk)
        if ask is not None:
            ask.wait()
        with self._lock:
            if self._released:
                return Cause.CLOSED
            if chunk in self._held:
                return self._held[chunk]
            return self._causes.get(chunk, Cause.FAILED)

    def leading(self, chunks: Sequence[int]) -> int:
        """How many of these, from the first on, are here."""
        with self._lock:
            for count, chunk in enumerate(chunks):
                if chunk not in self._held:
                    return count
        return len(chunks)

    def failures(self, cause: Cause) -> int:
        """How many chunks are not here for this cause."""
        with self._lock:
            return sum(found is cause for found in self._causes.values())

    def release(self) -> None:
        """Give everything back: at once what is here, the rest as soon as nobody writes into it."""
        with self._lock:
            if self._released:
                return
            self._released = True
            held = list(self._held.values())
            self._held.clear()
        for ask in set(self._asks.values()):
            ask.cancel()
        for memory in held:
            self._local.release(memory)
