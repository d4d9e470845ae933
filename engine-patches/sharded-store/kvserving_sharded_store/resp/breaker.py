"""Circuit breaker of one instance. Pure; the clock and the random number are arguments.

Closed, everything is tried. After a failure that shows the instance is of no use, or nonsense a few
times in a row, it opens: requests are answered at once (a miss) instead of after one deadline each.
From time to time one attempt to connect is made; when it succeeds the breaker closes.

A deadline that was missed shows nothing by itself: it may have been shorter than the way there. It
counts when the instance, asked for something, has not said a word for a while, on any connection.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_DOUBTS_IN_A_ROW: Final = 3
"""Useless answers in a row that open it: one may be the value's fault."""

_SILENCE_SECONDS: Final = 0.5
"""Nothing heard for so long after something was asked: nobody is there."""


@dataclass(slots=True)
class Breaker:
    """State of one instance.

    Attributes:
        first_wait: Seconds until the first attempt after opening.
        longest_wait: The wait doubles up to this.
        jitter: Gives a number in [0, 1): engines must not come back all at once.
    """

    jitter: Callable[[], float]
    first_wait: float = 0.1
    longest_wait: float = 3.0
    _open: bool = False
    _attempts: int = 0
    _doubts: int = 0
    _retry_at: float = 0.0
    _asked: float = -math.inf
    _heard: float = -math.inf

    @property
    def is_open(self) -> bool:
        """Whether requests are answered without trying."""
        return self._open

    @property
    def retry_at(self) -> float:
        """Monotonic second of the next attempt while open."""
        return self._retry_at

    def succeeded(self) -> None:
        """The instance answered."""
        self._open = False
        self._attempts = 0
        self._doubts = 0

    def failed(self, now: float) -> None:
        """It refused, broke the connection or the protocol."""
        wait = min(self.longest_wait, self.first_wait * 2**self._attempts)
        # Half to full: spread, yet never at once.
        self._retry_at = now + wait * (0.5 + 0.5 * self.jitter())
        self._attempts = min(self._attempts + 1, 16)
        self._open = True

    def doubted(self, now: float) -> None:
        """It sent nonsense: once proves nothing."""
        self._doubts += 1
        if self._doubts >= _DOUBTS_IN_A_ROW:
            self.failed(now)

    def asked(self, now: float) -> None:
        """Something is asked of it, if only for a connection."""
        if self._asked <= self._heard:
            self._asked = now

    def heard(self, now: float) -> None:
        """It said something."""
        self._heard = now

    def is_silent(self, now: float) -> bool:
        """Whether nothing has been heard for a while, though something was asked."""
        return now - max(self._asked, self._heard) >= _SILENCE_SECONDS
