"""Counters of one instance. Safe to use from several threads; read as one consistent copy."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

BOUNDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Upper bounds of the latency histogram in seconds; a last bucket holds what is above."""


@dataclass(slots=True)
class Stats:
    """What an instance did since the start.

    Counter names: ``get_done``, ``get_absent``, ``get_failed``, ``get_cancelled`` and likewise for
    ``set`` and ``exists``; ``bytes_read``, ``bytes_written``; ``connects``, ``connect_failures``,
    ``breaker_openings``; ``fetch_seconds`` (thread seconds spent in GETs).
    """

    _counts: dict[str, float] = field(default_factory=dict)
    _buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    _latency_sum: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, name: str, amount: float = 1) -> None:
        """Count."""
        with self._lock:
            self._counts[name] = self._counts.get(name, 0) + amount

    def observe(self, seconds: float) -> None:
        """One GET's value arrived after so many seconds."""
        with self._lock:
            self._buckets[bisect_left(BOUNDS, seconds)] += 1
            self._latency_sum += seconds

    def counts(self) -> Mapping[str, float]:
        """All counters that moved."""
        with self._lock:
            return dict(self._counts)

    def histogram(self) -> tuple[tuple[int, ...], float]:
        """GETs per bucket, and the sum of their seconds."""
        with self._lock:
            return tuple(self._buckets), self._latency_sum
