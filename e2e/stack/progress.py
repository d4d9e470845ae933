"""Progress of something that is waited for: a line when it changes, and now and then otherwise."""

from __future__ import annotations

from collections.abc import Callable

LOOK, REPEAT = 3.0, 15.0
"""Seconds between two looks, and between two lines when nothing changes."""


class Changes:
    """For `wait_for`: looks every 3 s and says what it sees when that changes or 15 s are over."""

    def __init__(self, look: Callable[[], str], say: Callable[[str], None]) -> None:
        self._look, self._say = look, say
        self._last, self._printed, self._looked = "", 0.0, -LOOK

    def __call__(self, elapsed: float) -> None:
        if elapsed - self._looked < LOOK:
            return
        self._looked = elapsed
        line = self._look()
        if line != self._last or elapsed - self._printed >= REPEAT:
            self._say(f"{elapsed:4.0f} s  {line}")
            self._last, self._printed = line, elapsed
