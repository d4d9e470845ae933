"""The latest loads and steps, timed, for whoever fits the cost model. Pure, but for a lock.

Lives in the scheduler's process, which alone sees decisions, arrivals and steps. Both rings are
bounded; a reader that comes too seldom misses rows, and sees that by their serial numbers.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

KEPT: Final = 64
"""Rows of each ring: a minute of loads at one a second."""
LARGE: Final = 4096
"""Computed tokens from which a step says something of the engine's rate."""
_PENDING: Final = 1024
"""Loads that have arrived and are in no step yet."""
_UNDER_WAY: Final = 3
"""Steps an engine has under way at a time at most; one whose end is not told is forgotten."""

LOAD_FIELDS: Final = (
    "serial",
    "tokens",
    "bytes",
    "probeSeconds",
    "fetchSeconds",
    "servedSeconds",
    "noticeSeconds",
    "stepSeconds",
    "stepTokens",
    "stepLoads",
)
STEP_FIELDS: Final = ("serial", "tokens", "seconds")


@dataclass(frozen=True, slots=True)
class Arrival:
    """A load whose bytes are all in memory.

    Attributes:
        tokens: Tokens the engine need not compute.
        read: Bytes that came from instances, over all ranks; the rest was in local memory.
        began: Second of the first question.
        decided: Second of the decision, when the fetch began.
        arrived: Second at which the last rank had its bytes.
    """

    tokens: int
    read: int
    began: float
    decided: float
    arrived: float


@dataclass(slots=True)
class _Pending:
    arrival: Arrival
    served: float
    busy: bool


@dataclass(slots=True)
class _Step:
    began: float
    tokens: int
    loads: list[_Pending] = field(default_factory=list)


class Recent:
    """Keeps both rings. Safe to use from several threads.

    Args:
        now: Monotonic seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._pending: dict[str, _Pending] = {}
        self._next: list[_Pending] = []
        self._steps: deque[_Step] = deque(maxlen=_UNDER_WAY)
        self._served_until = 0.0
        self._ended = 0.0
        self._loads: deque[list[float | None]] = deque(maxlen=KEPT)
        self._large: deque[list[float]] = deque(maxlen=KEPT)
        self._load_serial = 0
        self._step_serial = 0

    def arrived(self, name: str, arrival: Arrival) -> None:
        """All bytes of a request's load are here."""
        with self._lock:
            # Loads share the tier. What it did before the end of the last one was for that one, so
            # over any time these parts add up to the time in which it was working.
            begin = max(arrival.decided, self._served_until)
            served = max(0.0, arrival.arrived - begin)
            self._served_until = max(self._served_until, arrival.arrived)
            busy = any(step.tokens for step in self._steps)
            while len(self._pending) >= _PENDING:
                del self._pending[next(iter(self._pending))]
            self._pending[name] = _Pending(arrival, served, busy)

    def taken(self, name: str) -> None:
        """The engine has put a request into the step that it is about to begin."""
        with self._lock:
            pending = self._pending.pop(name, None)
            if pending is not None:
                self._next.append(pending)

    def forget(self, name: str) -> None:
        """The request ended before it was put into a step."""
        with self._lock:
            self._pending.pop(name, None)

    def stepped(self, tokens: int) -> None:
        """A step of so many computed tokens begins, with every load taken since the last one."""
        with self._lock:
            loads, self._next = self._next, []
            self._steps.append(_Step(self._now(), tokens, loads))

    def ended(self) -> None:
        """The oldest step under way has its results."""
        with self._lock:
            if not self._steps:
                return
            step, now = self._steps.popleft(), self._now()
            # A step may be scheduled while the one before it runs; it begins when that ends.
            seconds = now - max(step.began, self._ended)
            self._ended = now
            if step.loads:
                self._keep_loads(step, seconds)
            elif step.tokens >= LARGE:
                self._large.append([self._step_serial, step.tokens, _short(seconds)])
                self._step_serial += 1

    def _keep_loads(self, step: _Step, seconds: float) -> None:
        for pending in step.loads:
            arrival = pending.arrival
            notice = None if pending.busy else _short(max(0.0, step.began - arrival.arrived))
            self._loads.append(
                [
                    self._load_serial,
                    arrival.tokens,
                    arrival.read,
                    _short(arrival.decided - arrival.began),
                    _short(arrival.arrived - arrival.decided),
                    _short(pending.served),
                    notice,
                    _short(seconds),
                    step.tokens,
                    len(step.loads),
                ]
            )
            self._load_serial += 1

    def rings(self) -> dict[str, Any]:
        """Both rings, oldest rows first."""
        with self._lock:
            return {
                "loads": {"fields": list(LOAD_FIELDS), "rows": [list(row) for row in self._loads]},
                "steps": {"fields": list(STEP_FIELDS), "rows": [list(row) for row in self._large]},
            }


def _short(seconds: float) -> float:
    """Microseconds are more than these clocks know."""
    return round(seconds, 6)
