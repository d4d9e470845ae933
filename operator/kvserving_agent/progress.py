"""Whether an engine that has work gets any of it done (pure).

An engine whose core hangs goes on answering /health and /metrics from its front, with the numbers
of the last step. What gives it away is that requests run or wait and that nothing moves. Those that
come after the last step are in no number: where none waited then, none ever will.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

HUNG_SCRAPES = 6
"""Scrapes in a row without progress, after the one that showed it last: a minute at one in 10 s."""

COUNTERS = ("promptTokens", "generationTokens", "requestsFinished")
"""Numbers of the facts of which one grows whenever the engine gets a request, or a token, done."""
FILLING = "kvCacheUsage"
"""Moves while a long prompt is computed, which counts only when all of it is."""


@dataclass(frozen=True)
class Stall:
    """Requests have run or waited in `scrapes` scrapes on end while nothing moved.

    `since` is the time (monotonic seconds) of the first scrape that showed these numbers.
    """

    counters: tuple[float | None, ...]
    since: float
    scrapes: int = 0

    @property
    def hung(self) -> bool:
        """Whether it has lasted too long to be a long prompt."""
        return self.scrapes >= HUNG_SCRAPES


def follow(before: Stall | None, values: Mapping[str, float | None], at: float) -> Stall | None:
    """What one more scrape makes of it; None when there is no work or it cannot be told.

    Args:
        before: What the scrape before left.
        values: Numbers of this one, by their names in facts.
        at: When it was asked for, monotonic seconds.
    """
    counters = tuple(values.get(name) for name in COUNTERS)
    works = values.get("waiting") or values.get("running")
    if not works or all(counter is None for counter in counters):
        return None
    counters = (*counters, values.get(FILLING))
    if before is None or before.counters != counters:
        return Stall(counters, at)
    return Stall(counters, before.since, before.scrapes + 1)
