"""The lives of an agent in one container: how they ended, and how soon the next begins (pure)."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass

SOON_SECONDS = 10.0
"""A life that is shorter than this ended soon."""
FIRST_PAUSE = 0.125
"""Seconds before the third life in a row; each further one waits twice as long."""
MOST_SERVED = 1.0
"""Of lives that served: who asks meanwhile is queued, and a readiness probe waits 5 s."""
MOST_UNSERVED = 10.0
"""Of lives that end before they serve: queued or not, nobody is answered."""

HUNG = "Hung"
MEMORY = "Memory"
STATUS = "Exit"


@dataclass(frozen=True, kw_only=True)
class End:
    """How a life ended.

    `reason` is the name of a signal such as SIGKILL, `Exit` with its status, or `Hung` or `Memory`,
    for which the supervisor ends it. `status` is what a shell would show, `seconds` how long it
    lasted, `served` whether it came so far as to answer.
    """

    reason: str
    status: int
    seconds: float
    served: bool


def ended(wait_status: int, *, seconds: float, served: bool, why: str = "") -> End:
    """The end that waitpid tells of; `why` is the supervisor's own reason, if it had one."""
    code = os.waitstatus_to_exitcode(wait_status)
    if code < 0:
        return End(reason=why or _name(-code), status=128 - code, seconds=seconds, served=served)
    return End(reason=f"{STATUS} {code}", status=code, seconds=seconds, served=served)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"Signal {number}"


def pause(soon: int, *, served: bool) -> float:
    """Seconds before the next life, after `soon` lives in a row that ended soon.

    None before the first two: most agents that die do so once.
    """
    if soon < 2:
        return 0.0
    most = MOST_SERVED if served else MOST_UNSERVED
    return float(min(most, FIRST_PAUSE * 2 ** min(soon - 2, 16)))


@dataclass(frozen=True)
class Past:
    """What a life is told of those before it: how many ended for which reason, the last one's."""

    ends: Mapping[str, int]
    last: str | None = None

    @property
    def lives(self) -> int:
        """How many there were with this one."""
        return 1 + sum(self.ends.values())

    def followed(self, end: End) -> Past:
        """What the next life is told."""
        ends = {**self.ends, end.reason: self.ends.get(end.reason, 0) + 1}
        return Past(ends, end.reason)


FIRST = Past({})
"""Nothing ended yet."""
