"""A bar on standard error while something long goes on; nothing where nobody watches."""

import sys
import time
from typing import Final

_WIDTH: Final = 30
_SECONDS: Final = 0.1
"""Between two drawings."""


class Bar:
    """Drawn on a terminal only, so that logs and pipes stay clean; use as a context."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown = sys.stderr.isatty()
        self._began = time.monotonic()
        self._next = self._began + _SECONDS
        self._drawn = False

    def __enter__(self) -> "Bar":
        """Nothing is drawn yet: what is done in a moment needs no bar."""
        return self

    def __exit__(self, *_: object) -> None:
        """Take it away again."""
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def __call__(self, done: int, total: int, more: str = "") -> None:
        """So many of so many are done."""
        if not self._shown:
            return
        now = time.monotonic()
        if now < self._next:
            return
        self._next, self._drawn = now + _SECONDS, True
        filled = _WIDTH * done // max(total, 1)
        bar = "█" * filled + "░" * (_WIDTH - filled)
        spent = now - self._began
        sys.stderr.write(f"\r\x1b[K{self._what} {bar} {done:,}/{total:,}  {spent:.0f} s{more}")
        sys.stderr.flush()
