"""What an engine did in the last seconds: u, λ and p of the cost model. Pure."""

import math
from collections import deque
from typing import Final

WINDOW: Final = 10.0
"""Seconds; the sharded store looks back as far."""
MEETINGS: Final = 30.0
"""Seconds over which p is taken, likewise: of few requests it would be mostly chance."""


class BusyMeter:
    """Takes the steps of one engine in their order."""

    def __init__(self) -> None:
        self._spans: deque[tuple[float, float]] = deque()
        self._inside = 0.0
        self.until = -math.inf
        """End of the latest step."""

    def stepped(self, start: float, end: float) -> None:
        """A step took from ``start`` to ``end``."""
        self._spans.append((start, end))
        self.until = end
        self._inside += end - start

    def share(self, now: float) -> float:
        """u, 0 to 1."""
        spans, since = self._spans, now - WINDOW
        while spans and spans[0][1] <= since:
            start, end = spans.popleft()
            self._inside -= end - start
        cut = max(0.0, since - spans[0][0]) if spans else 0.0
        return min(1.0, max(0.0, (self._inside - cut) / WINDOW))


class ArrivalMeter:
    """Takes the requests of one engine in their order."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque()
        self._met: deque[tuple[float, bool]] = deque()
        self._busy = 0

    def came(self, now: float, *, busy: bool) -> tuple[float, float | None]:
        """λ and p of what came before now, p None if nothing did; one more has come."""
        recent, met = self._recent, self._met
        while recent and recent[0] <= now - WINDOW:
            recent.popleft()
        while met and met[0][0] <= now - MEETINGS:
            self._busy -= met.popleft()[1]
        found = len(recent) / WINDOW, self._busy / len(met) if met else None
        recent.append(now)
        met.append((now, busy))
        self._busy += busy
        return found
