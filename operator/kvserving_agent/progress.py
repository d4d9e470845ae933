"""Whether an engine that has work waiting gets any of it done (pure).

An engine whose core hangs goes on answering /health and /metrics from its front, with the numbers
of the last step. What gives it away is that requests wait and that no counter moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

HUNG_SCRAPES = 6
"""Scrapes in a row without progress, after the one that showed it last: a minute at one in 10 s. A
prompt counts when all of it is computed, which takes a slow engine half a minute for a long one."""

COUNTERS = ("promptTokens", "generationTokens", "requestsFinished")
"""Numbers of the facts of which one grows whenever the engine gets anything done."""


@dataclass(frozen=True)
class Stall:
    """Requests have been waiting in `scrapes` scrapes on end while nothing moved.

    `since` is the time (monotonic seconds) of the first scrape that showed these counters.
    """

    counters: tuple[float | None, ...]
    since: float
    scrapes: int = 0

    @property
    def hung(self) -> bool:
        """Whether it has lasted too long to be a long prompt."""
        return self.scrapes >= HUNG_SCRAPES


def follow(before: Stall | None, values: Mapping[str, float | None], at: float) -> Stall | None:
    """What one more scrape makes of it; None when nothing waits or it cannot be told.

    Args:
        before: What the scrape before left.
        values: Numbers of this one, by their names in facts.
        at: When it was asked for, monotonic seconds.
    """
    counters = tuple(values.get(name) for name in COUNTERS)
    if not values.get("waiting") or all(counter is None for counter in counters):
        return None
    if before is None or before.counters != counters:
        return Stall(counters, at)
    return Stall(counters, before.since, before.scrapes + 1)
