"""Blocks of finished requests that wait to be read by another engine.

Shared between the engine core's thread, which adds and expires, and the side channel's threads,
which read, renew and finish.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Lease:
    """One request's blocks. `digest` names the tokens whose KV they hold, `tokens` their number."""

    request_id: str
    blocks: tuple[int, ...]
    tokens: int
    digest: str
    expires: float
    readers: int = 0


class RefusedError(Exception):
    """A reader asked for something that is not leased to it."""


class Leases:
    """All leases of an engine. `duration` in seconds; a read or a renewal starts it again."""

    def __init__(self, duration: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._duration = duration
        self._clock = clock
        self._lock = threading.Lock()
        self._leases: dict[str, Lease] = {}
        self._done: list[str] = []
        self.late_notices = 0

    def add(self, request_id: str, blocks: list[int], tokens: int, digest: str) -> None:
        """Lease the blocks of a finished request."""
        with self._lock:
            expires = self._clock() + self._duration
            self._leases[request_id] = Lease(request_id, tuple(blocks), tokens, digest, expires)

    def begin_read(self, request_id: str, blocks: tuple[int, ...], digest: str) -> Lease:
        """Pin a lease for reading some of its blocks; RefusedError if it is not what was leased."""
        with self._lock:
            lease = self._leases.get(request_id)
            if lease is None:
                raise RefusedError(f"no KV is leased for request {request_id}")
            if not set(blocks) <= set(lease.blocks):
                raise RefusedError(f"blocks outside the lease of request {request_id}")
            if digest != lease.digest:
                raise RefusedError(f"request {request_id} was computed for another prompt")
            lease.readers += 1
            lease.expires = self._clock() + self._duration
            return lease

    def end_read(self, lease: Lease) -> None:
        """Unpin."""
        with self._lock:
            lease.readers -= 1

    def renew(self, request_ids: list[str]) -> None:
        """A reader is still waiting for room; unknown requests are ignored, as NIXL does."""
        with self._lock:
            for request_id in request_ids:
                if lease := self._leases.get(request_id):
                    lease.expires = self._clock() + self._duration

    def finish(self, request_id: str) -> None:
        """The reader has everything, or wants nothing."""
        with self._lock:
            if request_id in self._leases:
                self._done.append(request_id)
            else:
                self.late_notices += 1

    def collect(self) -> tuple[list[Lease], list[Lease]]:
        """Remove and return the leases that were finished and those that have expired."""
        with self._lock:
            finished = [self._leases.pop(name) for name in self._done if name in self._leases]
            self._done.clear()
            now = self._clock()
            expired = [
                lease
                for lease in self._leases.values()
                if lease.expires <= now and not lease.readers
            ]
            for lease in expired:
                del self._leases[lease.request_id]
            return finished, expired

    def take_late_notices(self) -> int:
        """Finish notices for requests without a lease since the last call."""
        with self._lock:
            count, self.late_notices = self.late_notices, 0
            return count

    def next_expiry(self) -> float | None:
        """Seconds until the first lease expires; None without leases."""
        with self._lock:
            if not self._leases:
                return None
            return max(0.0, min(lease.expires for lease in self._leases.values()) - self._clock())
