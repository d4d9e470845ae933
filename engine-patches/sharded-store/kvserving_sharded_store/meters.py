"""What the engine did in the last seconds: how busy it was, and who came. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final

_WINDOW: Final = 10.0
"""Seconds over which the share of busy time is taken: several steps of the longest prompts."""

_MEETINGS: Final = 30.0
"""Seconds over which p is taken: of few requests it would be mostly chance, and its square counts.
λ is taken over the seconds of u, so that what a request takes on average comes out right."""

_BETWEEN_STEPS: Final = 0.02
"""Seconds from the end of a step until the next is made up, at most."""

_ARRIVALS: Final = 1024
"""Arrivals that are kept."""


class BusyMeter:
    """u: the share of the last seconds that the engine spent in steps with tokens."""

    def __init__(self) -> None:
        self._spans: deque[tuple[float, float]] = deque()
        self._since: float | None = None

    def began(self, now: float) -> None:
        """A step with tokens begins."""
        if self._since is not None:
            self._spans.append((self._since, now))
        self._since = now
        self._drop(now)

    def ended(self, now: float) -> None:
        """Nothing is being computed."""
        if self._since is not None:
            self._spans.append((self._since, now))
            self._since = None
        self._drop(now)

    def _drop(self, now: float) -> None:
        while self._spans and self._spans[0][1] < now - _WINDOW:
            self._spans.popleft()

    def met(self, now: float) -> bool:
        """Whether a request that is looked up now came while the engine was stepping.

        It is looked up when the next step is made up, which is right behind the one that it met.
        """
        if self._since is not None:
            return True
        return bool(self._spans) and now - self._spans[-1][1] < _BETWEEN_STEPS

    def share(self, now: float) -> float:
        """u, 0 to 1."""
        spans = [*self._spans]
        if self._since is not None:
            spans.append((self._since, now))
        busy = sum(min(end, now) - max(start, now - _WINDOW) for start, end in spans if end > start)
        return min(1.0, max(0.0, busy / _WINDOW))


class ArrivalMeter:
    """λ and p: requests a second of the last seconds, and the share that found the engine busy."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, bool]] = deque(maxlen=_ARRIVALS)

    def came(self, now: float, *, busy: bool) -> None:
        """A request came."""
        self._seen.append((now, busy))

    def rate(self, now: float) -> float:
        """λ, ≥ 0."""
        seen, since = self._seen, now - _WINDOW
        # More came than are kept: these came in less time.
        if len(seen) == _ARRIVALS and since < seen[0][0] < now:
            return len(seen) / (now - seen[0][0])
        return sum(at > since for at, _ in seen) / _WINDOW

    def met(self, now: float) -> float | None:
        """The share p, 0 to 1; none where nobody came."""
        while self._seen and self._seen[0][0] <= now - _MEETINGS:
            self._seen.popleft()
        return sum(busy for _, busy in self._seen) / len(self._seen) if self._seen else None
