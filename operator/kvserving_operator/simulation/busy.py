"""The share of the last seconds that an engine was stepping: u of the cost model. Pure."""

from collections import deque
from typing import Final

WINDOW: Final = 10.0
"""Seconds; the sharded store looks back as far."""


class BusyMeter:
    """Takes the steps of one engine in their order."""

    def __init__(self) -> None:
        self._spans: deque[tuple[float, float]] = deque()
        self._inside = 0.0

    def stepped(self, start: float, end: float) -> None:
        """A step took from ``start`` to ``end``."""
        self._spans.append((start, end))
        self._inside += end - start

    def share(self, now: float) -> float:
        """u, 0 to 1."""
        spans, since = self._spans, now - WINDOW
        while spans and spans[0][1] <= since:
            start, end = spans.popleft()
            self._inside -= end - start
        cut = max(0.0, since - spans[0][0]) if spans else 0.0
        return min(1.0, max(0.0, (self._inside - cut) / WINDOW))
