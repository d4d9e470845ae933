"""What is looked up and brought for requests before they are loaded. Safe from several threads.

A request has at most one lookup and one set of chunks at a time, under its name. Both are given
back when the request is loaded, dropped or asked for anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from kvserving_sharded_store.exchange import Cause
from kvserving_sharded_store.fetch import Fetch, Local, Wanted
from kvserving_sharded_store.resp.ticket import Outcome, Verb
from kvserving_sharded_store.tier import Ask, Tier

_BATCH: Final = 16
"""Chunks of one request to the tier."""


class Prefetches:
    """The requests' chunks of one rank.

    Args:
        local: The rank's memory.
        tier: The rank's instances; none for local memory alone.
        count: Counts something.
    """

    def __init__(
        self, local: Local, tier: Tier | None, count: Callable[[str, float], None]
    ) -> None:
        self._local = local
        self._tier = tier
        self._count = count
        self._lock = threading.Lock()
        self._fetches: dict[str, Fetch] = {}
        self._asks: dict[str, Ask] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._fetches)

    def probe(
        self,
        name: str,
        wanted: Sequence[Wanted],
        seconds: float,
        known: Callable[[int | None], None],
    ) -> None:
        """Find out how many of these, from the first on, are there; does not wait.

        Args:
            name: The request.
            wanted: This rank's chunks, in order.
            seconds: Time allowed.
            known: Called once with the number, none when the lookup was dropped meanwhile.
        """
        fresh = [each for each in wanted if not self._cached(each)]
        if not fresh or self._tier is None:
            gone = {each.chunk for each in fresh}
            known(_leading(wanted, gone))
            return
        asked = self._tier.ask(Verb.EXISTS, [w.remote_key for w in fresh], [], seconds)
        with self._lock:
            before = self._asks.pop(name, None)
            if not self._closed:
                self._asks[name] = asked
        if before is not None:
            before.cancel()

        def answered(done: Ask) -> None:
            gone = {
                each.chunk
                for each, outcome in zip(fresh, done.outcomes(), strict=True)
                if outcome is not Outcome.DONE
            }
            with self._lock:
                current = self._asks.get(name) is done
                if current:
                    del self._asks[name]
            found = _leading(wanted, gone)
            if current and found < len(wanted) - len(gone):
                self._count("lookup_holes", 1)
            known(found if current else None)

        asked.when_final(answered)

    def _cached(self, wanted: Wanted) -> bool:
        memory = self._local.get(wanted.local_key)
        if memory is None:
            return False
        self._local.release(memory)
        return True

    def bring(
        self, name: str, wanted: Sequence[Wanted], seconds: float, here: Callable[[int, int], None]
    ) -> None:
        """Bring chunks into memory and hold them for a request; does not wait.

        Args:
            name: The request.
            wanted: This rank's chunks, in order.
            seconds: Time allowed.
            here: Called once with the number of chunks, from the first on, that have arrived, and
                the bytes that came from instances.
        """
        batches = [wanted[start : start + _BATCH] for start in range(0, len(wanted), _BATCH)]
        fetch = Fetch(self._local, self._tier, batches, seconds)
        with self._lock:
            before = self._fetches.pop(name, None)
            if not self._closed:
                self._fetches[name] = fetch
            closed = self._closed
        if before is not None:
            before.release()
        if closed:
            fetch.release()
        order = [each.chunk for each in wanted]

        def arrived(done: Fetch) -> None:
            absent = done.failures(Cause.ABSENT)
            if absent:
                self._count("absent_after_exists", absent)
            here(done.leading(order), done.read)

        fetch.when_final(arrived)

    def take(self, name: str, batches: Sequence[Sequence[Wanted]]) -> Fetch | None:
        """What was brought for a request; the caller gives it back.

        Nothing when it was brought for other chunks: names of requests can be used again.
        """
        with self._lock:
            fetch = self._fetches.pop(name, None)
        if fetch is None or all(map(fetch.is_of, batches)):
            return fetch
        fetch.release()
        return None

    def forget(self, name: str) -> None:
        """Give back what is held for a request, and break off what is on its way."""
        with self._lock:
            fetch = self._fetches.pop(name, None)
            asked = self._asks.pop(name, None)
        if asked is not None:
            asked.cancel()
        if fetch is not None:
            fetch.release()

    def close(self) -> None:
        """Give everything back, now and from now on."""
        with self._lock:
            self._closed = True
            names = [*self._fetches, *self._asks]
        for name in names:
            self.forget(name)


def _leading(wanted: Sequence[Wanted], gone: set[int]) -> int:
    return next((i for i, each in enumerate(wanted) if each.chunk in gone), len(wanted))
