"""Work queue of reconcile keys, with the semantics of client-go's rate-limiting queue.

A key is in the queue at most once and is never handed to two workers at the same time: added while
it is processed, it comes back once after `done`. Events are coalesced: a quiet key is handed out at
once, a busy one not before `spacing` seconds after its previous start, so a burst costs a few
passes and the first event of a burst costs no latency. All times are the event loop's clock.
"""

import asyncio
import heapq
import random
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar


class QueueStoppedError(Exception):
    """The queue was stopped: there is no further work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast keys may come back; seconds, and passes per second over all keys."""

    spacing: float = 0.5
    backoff_base: float = 0.2
    backoff_limit: float = 300.0
    rate: float = 20.0
    burst: int = 50


@dataclass(slots=True)
class _Timer:
    when: float
    # Time at which the key was asked for: the queue latency is measured from here.
    wanted: float


_CLOCK_RESOLUTION = 1e-6
"""Seconds; a shorter wait may end before the clock has moved, and would spin."""

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Deduplicating, delaying, rate-limited queue for one event loop."""

    def __init__(
        self, pace: Pace | None = None, *, jitter: Callable[[], float] = random.random
    ) -> None:
        self._pace = pace or Pace()
        self._jitter = jitter
        self._timers: dict[K, _Timer] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._sequence = 0
        self._processing: dict[K, float] = {}
        self._again: dict[K, float] = {}
        self._started: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._tokens = float(self._pace.burst)
        self._refilled: float | None = None
        self._changed = asyncio.Event()
        self._stopped = False
        self.adds = 0
        self.retries = 0

    def __len__(self) -> int:
        """Keys waiting, whether due or delayed, and keys that will come back after `done`."""
        return len(self._timers) + len(self._again)

    @property
    def due(self) -> int:
        """Keys that wait for a worker only, not for a time."""
        now = _now()
        return sum(timer.when <= now for timer in self._timers.values())

    @property
    def processing(self) -> int:
        """Keys that workers hold now."""
        return len(self._processing)

    def add(self, key: K) -> None:
        """Ask for a pass of `key` as soon as the coalescing window allows."""
        self.adds += 1
        now = _now()
        self._schedule(key, max(now, self._started.get(key, -1e9) + self._pace.spacing), now)

    def add_after(self, key: K, delay: float) -> None:
        """Ask for a pass in `delay` seconds; an earlier request for the key stays."""
        now = _now()
        floor = self._started.get(key, -1e9) + self._pace.spacing
        self._schedule(key, max(now + delay, floor), now + delay)

    def add_backoff(self, key: K) -> float:
        """Ask for a pass after the key's exponential backoff; returns the delay chosen."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.retries += 1
        # The exponent is bounded because 2.0 ** 1100 overflows after a week of failures.
        raw = self._pace.backoff_base * 2.0 ** min(failures, 40)
        delay = min(raw, self._pace.backoff_limit) * (0.75 + 0.5 * self._jitter())
        self.add_after(key, delay)
        return delay

    def failures(self, key: K) -> int:
        """Consecutive failures of the key."""
        return self._failures.get(key, 0)

    def succeeded(self, key: K) -> None:
        """Reset the backoff of the key."""
        self._failures.pop(key, None)

    def forget(self, key: K) -> None:
        """Drop all memory of a key whose object is gone; a pass already asked for still happens."""
        self._failures.pop(key, None)
        self._started.pop(key, None)

    async def get(self) -> K:
        """The next due key; QueueStoppedError after `stop`."""
        while True:
            if self._stopped:
                raise QueueStoppedError
            delay = self._next_delay()
            if delay is not None and delay <= _CLOCK_RESOLUTION:
                return self._take()
            await self._wait_for_change(delay)

    def done(self, key: K) -> None:
        """The worker has finished with the key; it comes back if it was asked for meanwhile."""
        del self._processing[key]
        when = self._again.pop(key, None)
        if when is not None:
            self._schedule(key, when, when)

    def stop(self) -> None:
        """Hand out no more keys; workers in `get` are released."""
        self._stopped = True
        self._notify()

    def latency(self, key: K) -> float:
        """Seconds that the key in processing had waited beyond the time it was wanted."""
        return self._processing.get(key, 0.0)

    def _schedule(self, key: K, when: float, wanted: float) -> None:
        if key in self._processing:
            self._again[key] = min(when, self._again.get(key, when))
            return
        timer = self._timers.get(key)
        if timer is not None and timer.when <= when:
            return
        self._timers[key] = _Timer(when=when, wanted=min(wanted, timer.wanted) if timer else wanted)
        self._sequence += 1
        heapq.heappush(self._heap, (when, self._sequence, key))
        self._notify()

    def _next_delay(self) -> float | None:
        """Seconds until a key may be taken; None when nothing is scheduled."""
        while self._heap:
            when, _, key = self._heap[0]
            timer = self._timers.get(key)
            if timer is None or timer.when != when:
                heapq.heappop(self._heap)  # an earlier time replaced this entry
                continue
            return max(when - _now(), self._token_delay())
        return None

    def _take(self) -> K:
        _, _, key = heapq.heappop(self._heap)
        timer = self._timers.pop(key)
        now = _now()
        self._tokens -= 1
        self._started[key] = now
        self._processing[key] = max(0.0, now - timer.wanted)
        return key

    def _token_delay(self) -> float:
        now = _now()
        elapsed = 0.0 if self._refilled is None else now - self._refilled
        self._refilled = now
        self._tokens = min(float(self._pace.burst), self._tokens + elapsed * self._pace.rate)
        missing = 1.0 - self._tokens
        # Sums of small refills end a hair below a whole token.
        return missing / self._pace.rate if missing > 1e-9 else 0.0

    async def _wait_for_change(self, delay: float | None) -> None:
        changed = self._changed
        try:
            async with asyncio.timeout(delay):
                await changed.wait()
        except TimeoutError:
            return

    def _notify(self) -> None:
        # Every waiter holds the event it saw: set that one, and let later waiters see a new one.
        self._changed.set()
        self._changed = asyncio.Event()


def _now() -> float:
    return asyncio.get_running_loop().time()
