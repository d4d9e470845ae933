"""How often a child is written back that somebody else changes again and again.

A hand edit is mended at once. Another controller that insists (an autoscaler on a child, an
operator of another release on the same object) would answer each write by one of its own, for ever
and as fast as both can.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

BURST: Final = 10
"""Repairs of one child that follow each other at once."""
INTERVAL: Final = 10.0
"""Seconds between repairs after that."""
_REMEMBERED: Final = 2000


@dataclass(slots=True)
class _Repairs:
    sent: str
    left: float
    counted_at: float


class Contests:
    """Counts repairs by child: writes of what was written before."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, _Repairs] = {}

    def may_write(self, uid: str, sent: str) -> bool:
        """Whether the child may be written now; what was never sent before always may."""
        known = self._known.get(uid)
        return known is None or known.sent != sent or self._left(known) >= 1.0

    def wrote(self, uid: str, sent: str) -> None:
        """The child was written."""
        known = self._known.pop(uid, None)
        repair = known is not None and known.sent == sent
        left = self._left(known) - 1.0 if known is not None and repair else float(BURST)
        self._known[uid] = _Repairs(sent, left, self._clock())
        while len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]

    def _left(self, known: _Repairs) -> float:
        return min(float(BURST), known.left + (self._clock() - known.counted_at) / INTERVAL)
